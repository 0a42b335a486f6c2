"""`RuntimeClasses`: handlers of the runtime classes that the agent's configuration or the cluster defines.

A class's handler is the name of a runtime on this node, or NAME--HANDLER: a runtime and one of its handlers. If both
define a class, the configuration decides (DECISIONS 3-5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeletx.kube.types.meta import ObjectMeta
    from kubeletx.kube.types.objects import RuntimeClass


class RuntimeClasses(Mapping[str, str]):
    """Mapping from runtime class name to handler: the name of a runtime on this node, or NAME--HANDLER.

    It changes with the cluster's runtime classes.
    Implements `ReflectorSink` of runtime classes. `configured`: the classes of the agent's configuration.
    """

    def __init__(self, configured: Mapping[str, str]) -> None:
        self._configured = dict(configured)
        self._found: dict[str, str] = {}
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call the listener after each change of the cluster's classes."""
        self._listeners.append(listener)

    def __getitem__(self, name: str) -> str:
        return self._configured[name] if name in self._configured else self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._found, **self._configured})

    def __len__(self) -> int:
        return len(self._found.keys() | self._configured.keys())

    def replace(self, items: Sequence[RuntimeClass], unreadable: Sequence[ObjectMeta]) -> None:
        """Replace all classes of the cluster. A class that cannot be decoded keeps its last handler."""
        kept = {meta.name: self._found[meta.name] for meta in unreadable if meta.name in self._found}
        self._become({**kept, **{item.metadata.name: item.handler for item in items}})

    def put(self, item: RuntimeClass) -> None:
        self._become({**self._found, item.metadata.name: item.handler})

    def drop(self, item: RuntimeClass) -> None:
        self._become({name: handler for name, handler in self._found.items() if name != item.metadata.name})

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        """Keep the class's last decoded handler."""

    def _become(self, handlers: dict[str, str]) -> None:
        if handlers == self._found:
            return
        self._found = handlers
        for listener in self._listeners:
            listener()
