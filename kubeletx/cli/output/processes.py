"""Text about the process of an isolated runtime, for ``plugins -o wide`` and ``describe runtime``."""

from __future__ import annotations

from kubeletx.server.views import PluginProcessView

from .printers import mebibytes


def process_text(process: PluginProcessView) -> str:
    """Return process id, memory, CPU time and restarts, such as ``pid 12, 48Mi, CPU 0.31s, 0 restarts``."""
    restarts = f"{process.restarts} restart{'' if process.restarts == 1 else 's'}"
    return f"pid {process.pid}, {mebibytes(process.memory_bytes)}, CPU {process.cpu_seconds:g}s, {restarts}"
