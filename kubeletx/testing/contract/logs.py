"""Contract of runtimes: logs, in the mode that the runtime declares (`Traits.log_mode`)."""

from __future__ import annotations

import re

import pytest

from kubeletx.api import LogMode, Runtime, SupportsLogReopen, SupportsLogStream, UnitSpec, UnitState

from .base import ContractBase, Pod, eventually, needs_processes, supported

CRI_LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (?P<stream>stdout|stderr) (?P<tag>[PF]) (?P<text>.*)"
)


class LogContract(ContractBase):
    """Tests that the output of a unit can be read in the log mode that the runtime declares.

    The modes are a log file in CRI format, a raw log file, and a stream.
    """

    async def test_a_log_file_has_the_cri_format(
        self, runtime: Runtime, pod: Pod, exiting_spec: UnitSpec
    ) -> None:
        needs_mode(runtime, LogMode.FILE)
        unit_id = await pod.start(exiting_spec)
        status = await pod.wait_state(unit_id, UnitState.EXITED)
        path = pod.log_path(exiting_spec)
        assert status.log_path == str(path)

        async def look() -> list[str] | None:
            lines = path.read_text().splitlines() if path.exists() else []
            return lines if len(lines) == 2 else None

        lines = [CRI_LINE.fullmatch(line) for line in await eventually(look, f"two lines in {path}")]
        records = sorted((m["stream"], m["tag"], m["text"]) for m in lines if m)
        assert records == [("stderr", "F", "oops"), ("stdout", "F", "hello")]

    async def test_a_log_file_goes_on_at_its_path_after_it_was_renamed_and_reopened(
        self, runtime: Runtime, pod: Pod, chatty_spec: UnitSpec
    ) -> None:
        needs_mode(runtime, LogMode.FILE)
        reopen = supported(runtime, SupportsLogReopen)
        unit_id = await pod.start(chatty_spec)
        path = pod.log_path(chatty_spec)

        async def look() -> bool | None:
            return True if path.exists() and "tick" in path.read_text() else None

        await eventually(look, f"a line in {path}")
        path.rename(path.with_suffix(".old"))
        await reopen.reopen_log(unit_id)
        await eventually(look, f"a line in the new {path}")

    async def test_a_raw_log_file_holds_what_was_printed(
        self, runtime: Runtime, pod: Pod, exiting_spec: UnitSpec
    ) -> None:
        needs_mode(runtime, LogMode.RAW_FILE)
        unit_id = await pod.start(exiting_spec)
        await pod.wait_state(unit_id, UnitState.EXITED)
        path = pod.log_path(exiting_spec)

        async def look() -> bool | None:
            text = path.read_text() if path.exists() else ""
            return True if "hello\n" in text and "oops\n" in text else None

        await eventually(look, f"the lines of stdout and stderr in {path}")

    async def test_a_log_stream_hands_over_what_was_printed(
        self, runtime: Runtime, pod: Pod, exiting_spec: UnitSpec
    ) -> None:
        needs_mode(runtime, LogMode.STREAM)
        logs = supported(runtime, SupportsLogStream)
        unit_id = await pod.start(exiting_spec)
        await pod.wait_state(unit_id, UnitState.EXITED)
        data = b"".join([data async for _, data in logs.log_stream(unit_id)])
        assert b"hello\n" in data


def needs_mode(runtime: Runtime, mode: LogMode) -> None:
    """Skip the test unless the runtime declares this log mode and runs processes."""
    needs_processes(runtime)
    if runtime.traits().log_mode is not mode:
        pytest.skip(f"the runtime declares log mode {runtime.traits().log_mode.value}")
