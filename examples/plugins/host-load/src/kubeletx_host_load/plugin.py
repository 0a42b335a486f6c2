"""The hook: registers the panel ``host-load``."""

from kubeletx.api import RegisterPanel, hookimpl

from .panel import HostLoad


@hookimpl
def kubeletx_register_panels(register: RegisterPanel) -> None:
    """Register one panel, without settings."""
    register("host-load", HostLoad, title="Load of the machine")
