"""Checks whether a node is well: each check looks at one subject, and its notes say what is found and what to do.

The checks run in parallel, each in a thread with a deadline: one that hangs or fails is a problem of its own and stops
no other. They read the node through `DoctorNode`, below any root directory.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from kubeletx.agent.config.tree import AgentConfig
from kubeletx.api.errors import KubeletxError
from kubeletx.linux.libc import call
from kubeletx.runtimes.endpoints.grammar import EndpointItem
from kubeletx.server.views import RuntimeView, VersionView, View

from ..connection.client import AgentClient
from .cri_servers import CriServer, ask_servers, configured_endpoints

OK, WARNING, PROBLEM = "ok", "warning", "problem"
_STATES: Final = (OK, WARNING, PROBLEM)
_TIME_ERROR: Final = 5
_LARGEST_TIMEX: Final = 512
"""Bytes; more than struct timex has on any architecture."""


def _is_synchronised() -> bool:
    """Return True unless the kernel's clock reports an error. Source: adjtimex(2)."""
    return call("adjtimex", ctypes.create_string_buffer(_LARGEST_TIMEX)) != _TIME_ERROR


class CheckNote(NamedTuple):
    """Result of a check. `state`: `OK`, `WARNING` or `PROBLEM`. `fix`: what to do."""

    state: str
    text: str
    fix: str = ""


class Finding(View, frozen=True, kw_only=True):
    """A note of the check with this name."""

    check: str
    state: str
    text: str
    fix: str = ""


class Diagnosis(View, frozen=True, kw_only=True):
    """All findings; `state` is the worst of them."""

    state: str
    findings: tuple[Finding, ...]


@dataclass(kw_only=True, eq=False)
class DoctorNode:
    """The node as the checks see it. What several checks need is read once.

    `root`: root of its file system. `config_error`: why the settings file was not read; `config` then has defaults.
    """

    config: AgentConfig
    agent: AgentClient
    root: Path = Path("/")
    config_error: str = ""
    statvfs: Callable[[Path], os.statvfs_result] = os.statvfs
    is_clock_synchronised: Callable[[], bool] = _is_synchronised

    def at(self, path: str | Path) -> Path:
        """Return where an absolute path of the node is."""
        return self.root / str(path).lstrip("/")

    def text(self, path: str | Path) -> str:
        """Return the content of a file without blanks around it; empty if it cannot be read."""
        try:
            return self.at(path).read_text(errors="replace").strip()
        except OSError:
            return ""

    @cached_property
    def version(self) -> VersionView | KubeletxError:
        """Version of the running agent, or why it does not answer."""
        try:
            return self.agent.get("/version", VersionView)
        except KubeletxError as error:
            return error

    @cached_property
    def runtimes(self) -> tuple[RuntimeView, ...]:
        """Runtimes of the running agent; empty without an agent."""
        is_running = not isinstance(self.version, KubeletxError)
        return self.agent.items("/v1/runtimes", RuntimeView) if is_running else ()

    @cached_property
    def endpoints(self) -> tuple[EndpointItem, ...]:
        """Endpoints of the running agent; without an agent, of the settings. Raises InvalidConfig."""
        of_agent = (EndpointItem("", view.workload_type, view.name, view.url) for view in self.runtimes)
        return tuple(of_agent) or configured_endpoints(self.config)

    @cached_property
    def servers(self) -> tuple[CriServer, ...]:
        """Answers of the CRI servers on unix sockets."""
        return ask_servers(self.endpoints, self.root)


Check: TypeAlias = Callable[[DoctorNode], Iterator[CheckNote]]


def examine(checks: Mapping[str, Check], node: DoctorNode, *, seconds: float) -> Diagnosis:
    """Run the checks by name, and return their findings in this order. `seconds`: deadline of them all."""
    late = CheckNote(
        PROBLEM, f"the check has not ended within {seconds:g} s", "look for a daemon or disk that hangs"
    )
    notes = {name: [late] for name in checks}

    def run(name: str, check: Check) -> None:
        try:
            notes[name] = list(check(node))
        except Exception as error:  # noqa: BLE001 - a check that fails must not stop the others
            text = error.message if isinstance(error, KubeletxError) else f"{type(error).__name__}: {error}"
            notes[name] = [CheckNote(PROBLEM, f"the check failed: {text}")]

    deadline = time.monotonic() + seconds
    threads = [threading.Thread(target=run, args=item, daemon=True) for item in checks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    findings = tuple(
        Finding(check=name, **note._asdict())
        for name, found in notes.items()
        for note in [note for note in found if note.state != OK] or found  # what is well shows nothing new
    )
    worst = max((finding.state for finding in findings), key=_STATES.index, default=OK)
    return Diagnosis(state=worst, findings=findings)
