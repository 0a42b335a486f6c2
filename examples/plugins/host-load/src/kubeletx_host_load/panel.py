"""The panel: load averages, running threads and uptime as the kernel has them."""

from pathlib import Path

from kubeletx.api import PluginHost, Table

PROC = Path("/proc")


class HostLoad:
    """Shows load averages, running threads and uptime. Implements `kubeletx.api.Panel`."""

    def __init__(self, settings: None, host: PluginHost) -> None:
        """Keep the host, as every factory does; `settings` is None, since this panel has none."""
        self._host = host

    async def show(self) -> Table:
        """Make the table from two small files of /proc."""
        load, uptime = await self._host.blocking(read)
        one, five, fifteen, threads = load.split()[:4]
        return Table(
            columns=("WHAT", "VALUE"),
            rows=(
                ("load over 1, 5 and 15 minutes", f"{one} {five} {fifteen}"),
                ("threads that run, of all", threads),
                ("hours since the machine started", f"{float(uptime.split()[0]) / 3600:.1f}"),
            ),
        )


def read() -> tuple[str, str]:
    """Texts of /proc/loadavg and /proc/uptime."""
    return (PROC / "loadavg").read_text(), (PROC / "uptime").read_text()
