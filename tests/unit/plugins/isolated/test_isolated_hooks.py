"""Health checks, admission checks and panels of a stranger's distribution, in a real child process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kubeletx.api import Internal, KubeletxError, ObjectData, Table, Unavailable
from kubeletx.plugins.health import CheckVerdict
from kubeletx.plugins.isolated.processes import IDLE_SECONDS
from kubeletx.pods import Rejection, Waiting
from kubeletx_testing.waiting import let_others_work, until
from tests.unit.plugins.isolated.services_model import ServicesModel


async def test_a_health_check_runs_in_a_child_that_starts_with_its_first_call(model: ServicesModel) -> None:
    assert model.services.usage("troubled") is None
    found = await model.check()
    assert found.verdict is CheckVerdict.PASSED
    assert found.message == f"pid {model.pid}"
    assert model.pid != os.getpid()
    assert model.restarts == 0


async def test_a_child_that_is_killed_is_started_again_after_a_delay(model: ServicesModel) -> None:
    await model.check()
    first = model.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: model.pid is None)
    assert (await model.check()).verdict is CheckVerdict.UNKNOWN  # it meets the end, or the delay after it
    found = await model.check()
    assert found.verdict is CheckVerdict.UNKNOWN
    assert found.message == "plugin distribution troubled: its process ended; started again in 1 s"
    assert model.callbacks("t-check").state.word == "degraded"
    model.wait_over()
    assert (await model.check()).verdict is CheckVerdict.PASSED
    assert model.pid not in (None, first)
    assert model.restarts == 1
    assert model.callbacks("t-check").state.word == "ready"


async def test_an_end_of_the_child_within_a_call_is_the_calls_error(model: ServicesModel) -> None:
    model.order("t-check", "crash")
    found = await model.check()
    assert found.verdict is CheckVerdict.UNKNOWN
    assert found.message == "the process of plugin distribution troubled: its connection closed"


async def test_exceptions_and_sys_exit_are_named_with_the_line_and_end_nothing(model: ServicesModel) -> None:
    await model.check()
    pid = model.pid
    for order, words in (("raise", "LookupError: not found"), ("exit", "SystemExit: 4")):
        model.order("t-check", order)
        found = await model.check()
        assert found.verdict is CheckVerdict.UNKNOWN
        assert found.message.startswith(f"health-check/t-check: check: {words} at {model.site.path}")
    model.order("t-check", "wrong")
    assert "returned str, not CheckResult" in (await model.check()).message
    assert model.pid == pid


async def test_long_texts_are_cut_where_they_cross(model: ServicesModel) -> None:
    model.order("t-panel", "long")
    with pytest.raises(Internal, match="characters left out") as raised:
        await model.panel()
    assert len(str(raised.value)) < 10_000


async def test_what_a_child_prints_is_logged_with_its_distribution(model: ServicesModel) -> None:
    model.order("t-check", "print")
    with capture_logs() as lines:
        await model.check()
        await until(lambda: [one for one in lines if one["event"] == "Output of plugin"])
    (line,) = [one for one in lines if one["event"] == "Output of plugin"]
    assert (line["owner"], line["text"]) == ("plugin distribution troubled", "from a plugin")


async def test_processes_that_a_child_has_started_end_with_it(model: ServicesModel) -> None:
    model.order("t-check", "start")
    await model.check()
    stat = Path(f"/proc/{model.file('t-check', 'started').read_text()}/stat")
    assert stat.exists()
    await model.close()
    await until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")


async def test_the_traceback_of_an_exception_is_in_the_agents_debug_log(model: ServicesModel) -> None:
    model.order("t-check", "raise")
    with capture_logs() as lines:
        await model.check()
        await until(lambda: [one for one in lines if "exception" in one])
    (line,) = [one for one in lines if "exception" in one]
    assert (line["log_level"], line["registration"]) == ("debug", "health-check/t-check")
    assert 'raise LookupError("not found")' in line["exception"]


async def test_a_factory_that_fails_is_the_answer_to_its_calls_alone(model: ServicesModel) -> None:
    model.file("t-check", "fail").touch()
    found = await model.check()
    assert "health-check/t-check: factory: ValueError: no backend" in found.message
    assert isinstance(await model.panel(), Table)


async def test_code_that_blocks_is_killed_after_its_deadline(model: ServicesModel) -> None:
    await model.check()
    first = model.pid
    model.order("t-check", "block")
    call = asyncio.create_task(model.check())
    await until(model.file("t-check", "began").exists)
    model.clock.advance(11.0)
    found = await call
    assert "check: did not return within 10 s" in found.message
    await model.ended()
    model.order("t-check", "")
    model.wait_over()
    assert (await model.check()).verdict is CheckVerdict.PASSED
    assert model.pid != first


async def test_a_call_that_hangs_leaves_the_child_to_the_others(model: ServicesModel) -> None:
    await model.check()
    pid = model.pid
    model.order("t-check", "deaf")
    call = asyncio.create_task(model.check())
    await until(model.file("t-check", "began").exists)
    model.clock.advance(11.0)
    assert "did not return within 10 s" in (await call).message
    assert isinstance(await model.panel(), Table)
    assert "an earlier call has not ended since its deadline" in (await model.check()).message
    model.file("t-check", "end").touch()
    model.order("t-check", "")
    await until_passed(model)
    assert model.pid == pid


async def until_passed(model: ServicesModel) -> None:
    """Repeat the check until it passes."""
    async with asyncio.timeout(20):
        while (await model.check()).verdict is not CheckVerdict.PASSED:
            await let_others_work()


async def test_a_flood_of_output_and_log_lines_ends_no_call(model: ServicesModel) -> None:
    model.order("t-check", "flood")
    assert (await model.check()).verdict is CheckVerdict.PASSED


async def test_a_child_that_ends_at_its_start_is_not_started_at_once_again(model: ServicesModel) -> None:
    assert model.services.usage("troubled") is None  # the plugin is loaded
    (model.site.path / "site_troubled/plugin.py").write_text("import os\nos._exit(1)\n")
    assert "its connection closed" in (await model.check()).message
    for _ in range(5):
        assert "started again in 1 s" in (await model.check()).message


async def test_a_plugin_that_changed_on_disk_is_named(model: ServicesModel) -> None:
    assert model.services.usage("troubled") is None  # the plugin is loaded
    (model.site.path / "site_troubled/plugin.py").write_text("x = 1\n")
    found = await model.check()
    assert "restart the agent after an update of the plugin" in found.message


async def test_the_host_of_the_child_is_the_agents(model: ServicesModel) -> None:
    model.cluster.config_maps["m"] = ObjectData(text={"k": "v"})
    found = await model.check("t-host")
    path = model.root / "plugins" / "t-host"
    assert found.message == f"t-host [{{'n': 2}}] ['RecordPut', 'RecordsSynced'] {{'k': 'v'}} {path}"
    assert path.stat().st_mode & 0o777 == 0o700
    assert model.events.reasons("node-1") == ["Used"]
    assert model.cluster.followed == {}
    assert [one.name for one in (await model.kinds["plugin.t-host"].list_page()).records] == []


async def test_a_panel_gets_its_settings_and_its_content_is_checked(model: ServicesModel) -> None:
    model.sections = {"t-panel": {"heading": "load"}}
    shown = await model.panel()
    assert shown == Table(columns=("load",), rows=((str(model.pid),),))
    model.order("t-panel", "huge")
    with pytest.raises(Internal, match="row 0 has 2 cells, not 1"):
        await model.panel()


async def test_reviews_refuse_wait_or_admit_as_in_the_agents_process(model: ServicesModel) -> None:
    assert await model.review("good") is None
    refused = await model.review("bad")
    assert isinstance(refused, Rejection)
    assert (refused.reason, refused.message) == ("Bad", "admission check t-open: no bad pods")
    model.order("t-open", "crash")
    model.order("t-review", "raise")
    waits = await model.review("good")  # t-open fails open, then t-review meets the outage
    assert isinstance(waits, Waiting)
    assert "its process ended; started again in" in waits.message


async def test_the_process_of_an_admission_check_runs_before_the_first_pod(model: ServicesModel) -> None:
    task = asyncio.create_task(model.services.background(lambda _: None)["plugin-admission"]())
    await let_others_work()
    assert model.pid is None, "the start of the agent does not share the processors with it"
    await model.clock.run_for(IDLE_SECONDS)
    await task
    assert model.pid is not None


async def test_isolation_none_runs_a_registration_in_the_agents_process(model: ServicesModel) -> None:
    model.isolation = {"t-check": "none"}
    assert (await model.check()).message == f"pid {os.getpid()}"
    assert model.pid is None
    sys.modules.pop("site_troubled", None)


async def test_the_child_gets_no_other_variable_of_the_agent(
    model: ServicesModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("REGION", "north")
    model.order("t-check", "environment")
    names = (await model.check()).message.split()
    assert {"PATH", "REGION"} <= set(names)
    assert "AWS_SECRET_ACCESS_KEY" not in names


async def test_an_end_of_the_agent_while_it_gives_up_a_child_leaves_no_process(model: ServicesModel) -> None:
    await model.check()
    pid = model.pid
    model.order("t-check", "crash")
    await model.check()
    await model.services.close()  # the task that ends the child has not run yet
    with pytest.raises(ChildProcessError):
        os.waitpid(pid or 0, os.WNOHANG)  # noqa: ASYNC222 - WNOHANG does not wait


async def test_calls_after_the_end_start_no_child(model: ServicesModel) -> None:
    await model.check()
    await model.services.close()
    assert model.pid is None
    with pytest.raises(KubeletxError):
        await model.panel()
    assert isinstance(model.callbacks("t-panel").state.reason, str)
    with pytest.raises(Unavailable, match="the agent ends"):
        await model.panel()
