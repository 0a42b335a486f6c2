"""`FlexDriverPanel`: the panel ``flexvolume-drivers``, a table of the drivers that were found."""

from __future__ import annotations

from pathlib import Path

from kubeletx.api import PluginHost, Table

from .status import FILE_NAME, FlexDriverStatus, read_status

_COLUMNS = ("DRIVER", "STATE", "CAPABILITIES", "CALLS", "FAILED", "LAST ERROR")


class FlexDriverPanel:
    """Shows the drivers, their state and the last error of each. Implements `kubeletx.api.Panel`."""

    def __init__(self, host: PluginHost, registration: str) -> None:
        """`registration`: name of the volume driver's registration, whose state directory is next to the panel's."""
        self._host = host
        self._registration = registration

    async def show(self) -> Table:
        found = await self._host.blocking(read_status, self._path())
        return Table(columns=_COLUMNS, rows=tuple(_row(one) for one in found))

    def _path(self) -> Path:
        return self._host.state_directory.parent / self._registration / FILE_NAME


def _row(status: FlexDriverStatus) -> tuple[str, ...]:
    return (
        status.name,
        status.state,
        " ".join(status.capabilities) or "none",
        str(status.calls),
        str(status.failures),
        status.last_error,
    )
