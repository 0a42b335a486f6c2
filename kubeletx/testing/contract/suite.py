"""`RuntimeContract`: the whole contract suite for runtimes."""

from .base import ContractBase
from .basics import BasicContract
from .changes import ChangeContract
from .ends import EndContract
from .images import ImageContract
from .logs import LogContract
from .power import PowerContract
from .processes import ProcessContract
from .sandboxes import SandboxContract
from .streams import StreamContract
from .units import UnitContract
from .usage import UsageContract


class RuntimeContract(
    BasicContract,
    SandboxContract,
    UnitContract,
    ProcessContract,
    EndContract,
    LogContract,
    StreamContract,
    ImageContract,
    ChangeContract,
    UsageContract,
    PowerContract,
):
    """Tests that every implementation of `kubeletx.api.Runtime` and its capabilities must pass.

    Subclass it and define the fixture `make_runtime`.
    """


__all__ = ["ContractBase", "RuntimeContract"]
