"""`RuntimeContract`: the whole contract suite for runtimes."""

from .base import ContractBase
from .basics import BasicContract
from .changes import ChangeContract
from .images import ImageContract
from .logs import LogContract
from .power import PowerContract
from .processes import ProcessContract
from .sandboxes import SandboxContract
from .streams import StreamContract
from .units import UnitContract


class RuntimeContract(
    BasicContract,
    SandboxContract,
    UnitContract,
    ProcessContract,
    LogContract,
    StreamContract,
    ImageContract,
    ChangeContract,
    PowerContract,
):
    """Tests that every implementation of `kubeletx.api.Runtime` and its capabilities must pass.

    Subclass it and define the fixture `make_runtime`.
    """


__all__ = ["ContractBase", "RuntimeContract"]
