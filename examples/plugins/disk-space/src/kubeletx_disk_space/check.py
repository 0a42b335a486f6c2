"""The check: every configured directory lies on a file system with enough free space."""

import os

import msgspec

from kubeletx.api import CheckResult, PluginHost, Severity


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The section ``kubeletx.plugins.disk-space`` of the configuration."""

    paths: tuple[str, ...] = ("/",)
    """Directories to look at."""
    warning_percent: float = 5.0
    """Free space below which the check warns."""
    error_percent: float = 1.0
    """Free space below which the check fails."""


class DiskSpace:
    """Checks the free space of directories. Implements `kubeletx.api.HealthCheck`."""

    def __init__(self, settings: Settings, host: PluginHost) -> None:
        """Keep the settings and the host, as every factory does; no I/O here."""
        self._settings = settings
        self._host = host

    async def check(self) -> CheckResult:
        """Report the directory whose file system has the smallest share of free space, if that is too small."""
        free = [(await self._host.blocking(free_percent, path), path) for path in self._settings.paths]
        percent, path = min(free, default=(100.0, ""))
        if percent >= self._settings.warning_percent:
            return CheckResult(ok=True)
        failed = percent < self._settings.error_percent
        return CheckResult(
            ok=False,
            severity=Severity.ERROR if failed else Severity.WARNING,
            message=f"{percent:.0f} % of the space for {path} is free",
        )


def free_percent(path: str) -> float:
    """Free space of the file system, in percent of what users other than root may take."""
    status = os.statvfs(path)
    usable = status.f_blocks - status.f_bfree + status.f_bavail
    return 100.0 * status.f_bavail / usable if usable else 100.0
