"""The hook: registers the pod source ``directory-pods``."""

from kubeletx.api import RegisterPodSource, hookimpl

from .source import DirectoryPods, Settings


@hookimpl
def kubeletx_register_pod_sources(register: RegisterPodSource) -> None:
    """Register one source, which runs once a directory is configured."""
    register("directory-pods", DirectoryPods, settings=Settings, only_configured=True)
