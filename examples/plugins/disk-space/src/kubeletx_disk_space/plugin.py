"""The hook: registers the health check ``disk-space``."""

from kubeletx.api import RegisterHealthCheck, hookimpl

from .check import DiskSpace, Settings


@hookimpl
def kubeletx_register_health_checks(register: RegisterHealthCheck) -> None:
    """Register the check, which runs once a minute."""
    register("disk-space", DiskSpace, period_seconds=60.0, settings=Settings)
