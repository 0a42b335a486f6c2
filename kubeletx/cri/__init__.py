"""Public: client side of the Container Runtime Interface (CRI), v1.

`CriRuntime` implements `kubeletx.api.Runtime` over any CRI server; `ContainerdRuntime` also uses containerd's own gRPC
services. Plugins build on these two classes. `ContainerdTasks` pauses, resumes and kills containers of containerd.
`CriClient` makes single calls; the module `methods` lists all CRI calls; `convert` converts values of `kubeletx.api` to
CRI messages and back; `stubs` has the generated message classes.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import CriClient
    from .containerd import ContainerdEvents, server_uuid
    from .containerd_runtime import ContainerdRuntime, follow_pulls
    from .containerd_tasks import ContainerdTask, ContainerdTasks, TaskState
    from .errors import CriStatusError
    from .images import CRI_NAMESPACE, FollowPull
    from .runtime import CriRuntime

__all__ = [
    "CRI_NAMESPACE",
    "ContainerdEvents",
    "ContainerdRuntime",
    "ContainerdTask",
    "ContainerdTasks",
    "CriClient",
    "CriRuntime",
    "CriStatusError",
    "FollowPull",
    "TaskState",
    "follow_pulls",
    "server_uuid",
]

_HOMES = {
    "CRI_NAMESPACE": "images",
    "ContainerdEvents": "containerd",
    "ContainerdRuntime": "containerd_runtime",
    "ContainerdTask": "containerd_tasks",
    "ContainerdTasks": "containerd_tasks",
    "CriClient": "client",
    "CriRuntime": "runtime",
    "CriStatusError": "errors",
    "FollowPull": "images",
    "TaskState": "containerd_tasks",
    "follow_pulls": "containerd_runtime",
    "server_uuid": "containerd",
}


def __getattr__(name: str) -> Any:
    """Import an exported class when its name is first used, so that commands that make no call do not load gRPC."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
