"""Public: everything that speaks the Container Runtime Interface, v1.

`CriRuntime` is a complete runtime over any CRI server; plugins build on it. `CriClient` makes single
calls, `methods` names them, `convert` turns contract values into messages and back, `stubs` holds the
messages.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import CriClient
    from .containerd import ContainerdEvents
    from .errors import CriStatusError
    from .runtime import CriRuntime

__all__ = ["ContainerdEvents", "CriClient", "CriRuntime", "CriStatusError"]

_HOMES = {
    "ContainerdEvents": "containerd",
    "CriClient": "client",
    "CriRuntime": "runtime",
    "CriStatusError": "errors",
}


def __getattr__(name: str) -> Any:
    """Import on first use: gRPC is not loaded by a command line that makes no call."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
