"""The whole contract suite for runtimes."""

from .base import ContractBase
from .basics import BasicContract
from .changes import ChangeContract
from .images import ImageContract
from .logs import LogContract
from .power import PowerContract
from .sandboxes import SandboxContract
from .streams import StreamContract
from .units import UnitContract


class RuntimeContract(
    BasicContract,
    SandboxContract,
    UnitContract,
    LogContract,
    StreamContract,
    ImageContract,
    ChangeContract,
    PowerContract,
):
    """Everything that `kubeletx.api.runtime` promises; subclass it and define `make_runtime`."""


__all__ = ["ContractBase", "RuntimeContract"]
