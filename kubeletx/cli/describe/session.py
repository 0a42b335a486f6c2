"""Output of ``kubeletx session describe``: one session with its times and clients."""

from __future__ import annotations

from datetime import datetime

from kubeletx.kube.text.human import age
from kubeletx.server.session_views import SessionUsageView, SessionView

from .sheet import Sheet


def describe_session(session: SessionView, now: datetime, *, wide: bool = False) -> list[str]:
    """Return the lines that ``kubeletx session describe`` prints. `wide`: with the session's data, if it is text."""
    sheet = Sheet()
    sheet.add("Name", session.name).add("Namespace", session.namespace)
    sheet.add("Pod", session.pod).add("Pod UID", session.pod_uid).add("Application", session.application)
    sheet.add("Origin", session.origin).add("State", session.state)
    sheet.add_if("Reason", session.reason).add_if("Message", session.message)
    sheet.add("Age", age(session.created_at, now))
    opened = session.ready_at
    if opened is not None:
        took = (opened - session.created_at).total_seconds()
        sheet.add("Open", f"since {age(opened, now)}, {took:.3f}s after the request")
    if session.closed_at is not None:
        sheet.add("Ended", f"{age(session.closed_at, now)} ago")
    heartbeat = f"{age(session.heartbeat_at, now)} ago" if session.heartbeat_at is not None else ""
    sheet.add("Last Heartbeat", heartbeat + (" (silent)" if session.silent else ""))
    sheet.add("Open Timeout", f"{session.open_timeout_seconds:g}s")
    sheet.add("Close Grace", f"{session.close_grace_seconds:g}s")
    sheet.add("Kill Instance", "yes" if session.kill_instance else "no")
    if session.usage is not None:
        _add_usage(sheet.nest("Usage"), session.usage)
    rows = [[client.name, age(client.joined_at, now)] for client in session.clients]
    sheet.table(f"Clients ({len(rows)})", ("Name", "Joined"), rows)
    sheet.add("Data", f"{len(session.data)} bytes")
    if wide and session.data:
        sheet.add("Content", session.data.decode(errors="replace").split("\n"))
    return sheet.lines()


def _add_usage(sheet: Sheet, usage: SessionUsageView) -> None:
    costs = usage.costs
    sheet.add("Open", f"{costs.open_seconds:.1f} s").add("Clients", f"{costs.client_seconds:.1f} s")
    sheet.add("CPU", f"{costs.cpu_seconds:.3f} s")
    sheet.add("Memory", f"{costs.memory_byte_seconds / (1 << 30):.3f} GiB s")
    ends = {position.container: position for position in usage.logs_at_close}
    rows = []
    for begin in usage.logs_at_open:
        end = ends.get(begin.container)
        rows.append(
            [begin.container, begin.file, str(begin.offset), str(end.offset) if end is not None else ""]
        )
    if rows:
        sheet.table("Logs", ("Container", "File", "From Byte", "To Byte"), rows)
