"""The hook: registers the panel ``host-load``."""

from kubeletx.api import RegisterPanel, hookimpl

from .panel import HostLoad


@hookimpl
def kubeletx_register_panels(register: RegisterPanel) -> None:
    """One panel without settings."""
    register("host-load", HostLoad, title="Load of the machine")
