"""The hook: registers the runtime kind ``process``."""

from kubeletx.api import CONTAINER, RegisterRuntime, hookimpl

from .runtime import ProcessRuntime


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Serve endpoints such as ``container:local:process:///``."""
    register("process", ProcessRuntime, workload_types=(CONTAINER,), schemes=("process",), default_claim=True)
