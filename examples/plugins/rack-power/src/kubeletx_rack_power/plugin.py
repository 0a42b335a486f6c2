"""The hook: registers the remedy ``rack-power``."""

from kubeletx.api import RegisterRemedy, hookimpl

from .remedy import RackPower


@hookimpl
def kubeletx_register_remedies(register: RegisterRemedy) -> None:
    """Register one remedy."""
    register("rack-power", RackPower)
