"""The whole contract suite for runtimes, put together from its parts."""

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
    """Tests of everything that `kubeletx.api.runtime` promises; subclass it and define the fixture
    `make_runtime`.
    """


__all__ = ["ContractBase", "RuntimeContract"]
