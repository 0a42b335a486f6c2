"""`Cluster`: the cores that share nodes, and which of them owns each node.

Active/standby: one core owns every node. Partitioned: `move` gives nodes to other cores. A core that does not own a node
answers its registration with a FornaxCoreConfiguration, and keeps its reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletx.api.errors import NotFound
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb

if TYPE_CHECKING:
    from .core import FornaxCore


class Cluster:
    """Cores in the order in which they were made; the first one owns every node that was not moved."""

    def __init__(self) -> None:
        self.cores: dict[str, FornaxCore] = {}
        self._owners: dict[str, str] = {}
        self._unannounced: set[str] = set()

    def core(self, name: str) -> FornaxCore:
        """Return the core. Raises NotFound."""
        if name not in self.cores:
            raise NotFound(f"core {name!r} does not exist; known: {', '.join(self.cores)}")
        return self.cores[name]

    def owner(self, node: str) -> FornaxCore:
        """Return the core that owns the node."""
        return self.cores[self._owners.get(node, next(iter(self.cores)))]

    def configuration(self, node: str) -> pb.FornaxCoreConfiguration:
        """Make the FornaxCoreConfiguration of a node: `ip` of a core is HOST:PORT."""
        owner = self.owner(node)
        standbys = [one.identity for one in self.cores.values() if one is not owner]
        return pb.FornaxCoreConfiguration(primary=owner.identity, standbys=standbys)

    def move(self, node: str, core: str, *, inside_command: bool = False) -> None:
        """Make `core` the owner of a node. The cores tell the node at once.

        `inside_command`: instead, the next command from any core has the configuration in its field `ownership`.
        Raises NotFound.
        """
        self._owners[node] = self.core(core).settings.name
        if inside_command:
            self._unannounced.add(node)
            return
        message = pb.FornaxCoreMessage(fornaxCoreConfiguration=self.configuration(node))
        for one in self.cores.values():
            if one.is_connected(node):
                one.send(node, message)

    def take_unannounced(self, node: str) -> pb.FornaxCoreConfiguration | None:
        """Return the configuration that the next command has to carry; None: none."""
        if node not in self._unannounced:
            return None
        self._unannounced.discard(node)
        return self.configuration(node)
