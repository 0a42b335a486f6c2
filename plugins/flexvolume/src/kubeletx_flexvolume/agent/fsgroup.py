"""`TopDirectory`: gives the top directory of a volume to the pod's fsGroup.

Normally the kubelet applies the fsGroup to all files, which takes long on large volumes. With option
``--fs-group=top-directory`` the driver reports that kubelets must not do so, and the agent changes the top directory
only: new files get the group from its setgid bit.
"""

from __future__ import annotations

from ..commands import Commands
from .namespace import MountNamespace

_SECONDS = 30.0


class TopDirectory:
    """Changes group and mode of top directories, with programs, as the file system may hang."""

    def __init__(self, commands: Commands, namespace: MountNamespace) -> None:
        self._commands = commands
        self._namespace = namespace

    async def apply(self, volume: str, directory: str, group: int) -> None:
        """Give the directory to the group, which may write and passes itself on to new files."""
        for command in (["chgrp", "--", str(group), directory], ["chmod", "--", "g+rwxs", directory]):
            result = await self._commands.run(
                self._namespace.command(command), seconds=_SECONDS, volume=volume
            )
            if result.code != 0:
                raise result.problem(f"volume {volume}")
