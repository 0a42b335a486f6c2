"""Health checks of plugins in a whole agent: /healthz, node conditions, events, plugins, metrics."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest
import structlog

from kubeletx.api import CheckResult, InvalidConfig, PluginHost, Severity
from kubeletx.kube.types.node import NodeCondition
from kubeletx.plugins.registrations import Hook, Registration
from kubeletx.server.backend import AdminBackend
from kubeletx.server.metrics.process import render
from tests.unit.agent.agent_model import AgentModel

GOOD = CheckResult(ok=True)
WARNS = CheckResult(ok=False, message="12 % of the space for / is free")
FAILS = CheckResult(ok=False, severity=Severity.ERROR, message="the disk\nis full")


class Check:
    """Returns or raises what it is given; a function is called."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls = 0

    async def check(self) -> CheckResult:
        self.calls += 1
        answer = self.answer
        if isinstance(answer, BaseException):
            raise answer
        result: CheckResult = await answer() if callable(answer) else answer
        return result


def register(agent: AgentModel, name: str, check: Any, **fields: Any) -> None:
    """A health check that the agent's plugins registered. `check`: a `Check`, or the factory's own error."""

    def factory(settings: Any, host: PluginHost) -> Any:
        if isinstance(check, BaseException):
            raise check
        return check

    fields = dict[str, Any](period_seconds=30.0, plugin="acme") | fields
    agent.registrations.add(Registration(hook=Hook.HEALTH_CHECK, name=name, factory=factory, **fields))


async def condition(backend: AdminBackend, name: str) -> NodeCondition:
    node = await backend.node.get_node()
    return next(c for c in node.status.conditions if c.type == f"kubeletx.io/Healthy-{name}")


async def part(backend: AdminBackend, name: str) -> tuple[bool, str]:
    found = next(p for p in (await backend.about.health()).parts if p.name == f"plugin-{name}")
    return found.ok, found.message


async def events(backend: AdminBackend) -> list[tuple[str, str]]:
    return [
        (event.reason or "", event.message or "")
        for event in await backend.node.list_events()
        if (event.reason or "").startswith("HealthCheck")
    ]


async def test_a_check_that_passes_is_shown_everywhere_and_makes_no_event(agent: AgentModel) -> None:
    check = Check(GOOD)
    register(agent, "disk", check)
    async with agent.running() as backend:
        await agent.until(lambda: check.calls >= 2)
        assert await part(backend, "disk") == (True, "")
        assert (await condition(backend, "disk")).status == "True"
        assert (await backend.node.get_node()).status.conditions[-1].type == "Ready"
        assert await events(backend) == []


async def test_a_warning_is_an_event_and_a_message_and_the_agent_stays_healthy(agent: AgentModel) -> None:
    check = Check(WARNS)
    register(agent, "disk", check)
    async with agent.running() as backend:
        await agent.until(lambda: check.calls)
        await agent.clock.settle()
        assert await part(backend, "disk") == (True, WARNS.message)
        assert ((await condition(backend, "disk")).status, (await condition(backend, "disk")).reason) == (
            "True",
            "CheckWarning",
        )
        assert await events(backend) == [
            ("HealthCheckFailed", f"Health check disk: warning: {WARNS.message}")
        ]


async def test_a_failure_fails_healthz_until_the_check_passes(agent: AgentModel) -> None:
    check = Check(FAILS)
    register(agent, "disk", check)
    async with agent.running() as backend:
        await agent.until(lambda: check.calls)
        await agent.clock.settle()
        assert await part(backend, "disk") == (False, "the disk is full")
        assert not (await backend.about.health()).ok
        failed = await condition(backend, "disk")
        assert (failed.status, failed.reason, failed.message) == ("False", "CheckFailed", "the disk is full")
        check.answer = GOOD
        calls = check.calls
        await agent.until(lambda: check.calls > calls)
        await agent.clock.settle()
        assert (await backend.about.health()).ok
        assert [reason for reason, _ in await events(backend)] == ["HealthCheckFailed", "HealthCheckPassed"]


async def test_a_check_that_hangs_is_timed_out_and_named_and_others_go_on(agent: AgentModel) -> None:
    hangs, good = Check(asyncio.Event().wait), Check(GOOD)
    register(agent, "hangs", hangs)
    register(agent, "good", good, plugin="other")
    async with agent.running() as backend:
        await agent.until(lambda: good.calls >= 2)
        unknown = await condition(backend, "hangs")
        assert (unknown.status, unknown.reason) == ("Unknown", "CheckBroken")
        assert "health-check/hangs: check: did not return within 10 s" in (unknown.message or "")
        assert (await condition(backend, "good")).status == "True"
        assert (await backend.about.health()).ok
        views = {view.name: view for view in await backend.about.plugins()}
        assert (views["acme"].state, views["other"].state) == ("degraded", "ready")
        assert "did not return" in views["acme"].reason
        text = render(await backend.about.metrics()).decode()
        labels = 'callback="check",plugin="acme",reason="timeout",registration="hangs"'
        assert f"kubeletx_plugin_callback_errors_total{{{labels}}} " in text
        labels = 'callback="check",plugin="other",registration="good"'
        assert f"kubeletx_plugin_callback_duration_seconds_count{{{labels}}} " in text


@pytest.mark.parametrize(
    "answer", [RuntimeError("broken"), SystemExit(1), asyncio.CancelledError(), "no result", None]
)
async def test_a_broken_check_is_unknown_and_is_asked_again(agent: AgentModel, answer: Any) -> None:
    check, good = Check(answer), Check(GOOD)
    register(agent, "broken", check)
    register(agent, "good", good)
    async with agent.running() as backend:
        await agent.until(lambda: check.calls >= 2 and good.calls >= 2)
        assert (await condition(backend, "broken")).status == "Unknown"
        assert (await condition(backend, "good")).status == "True"
        check.answer = GOOD
        calls = check.calls
        await agent.until(lambda: check.calls > calls)
        await agent.clock.settle()
        assert (await condition(backend, "broken")).status == "True"
        (view,) = [view for view in await backend.about.plugins() if view.name == "acme"]
        assert view.state == "ready"


async def test_a_restart_is_not_a_transition_of_the_condition(agent: AgentModel) -> None:
    check = Check(GOOD)
    register(agent, "disk", check)
    async with agent.running() as backend:
        await agent.until(lambda: check.calls)
        before = await condition(backend, "disk")
    agent.clock.advance(600)
    check.answer = asyncio.Event().wait
    async with agent.running() as backend:
        now = await condition(backend, "disk")
        assert (now.status, now.reason) == ("True", "NotCheckedYet")
        assert now.last_transition_time == before.last_transition_time
        await agent.until(lambda: check.calls == 2)
        await agent.clock.run_for(11)
        assert (await condition(backend, "disk")).reason == "CheckBroken"


async def test_a_check_that_cannot_be_made_is_failed_and_stops_no_other(agent: AgentModel) -> None:
    good = Check(GOOD)
    register(agent, "unmade", SystemExit("no way"))
    register(agent, "good", good)
    async with agent.running() as backend:
        await agent.until(lambda: good.calls)
        (view,) = [view for view in await backend.about.plugins() if view.name == "acme"]
        assert view.state == "degraded"
        assert [one.state for one in view.registrations] == ["failed", "ready"]
        assert "SystemExit: no way" in view.reason


class Limits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    free_percent: int = 5


async def test_a_check_gets_its_settings_and_a_host_of_its_own(agent: AgentModel) -> None:
    made: list[tuple[Limits, PluginHost]] = []

    def factory(settings: Limits, host: PluginHost) -> Check:
        made.append((settings, host))
        return Check(GOOD)

    agent.registrations.add(
        Registration(
            hook=Hook.HEALTH_CHECK,
            name="disk",
            factory=factory,
            settings=Limits,
            plugin="acme",
            period_seconds=60.0,
        )
    )
    agent.configure("runtimes", plugins={"disk": {"freePercent": 9}})
    async with agent.running():
        ((settings, host),) = made
        assert settings.free_percent == 9
        assert (host.name, host.node_name) == ("disk", "node")
        assert host.state_directory == agent.config.root_dir / "plugins" / "disk"
        assert host.state_directory.stat().st_mode & 0o777 == 0o700
        assert host.cluster is None
        assert await host.blocking(lambda: 3) == 3
        made_record = await host.records.create("one", {"verdict": "fine"})
        assert await host.records.get("one") == made_record


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"disk": {"free": 9}}, "unknown field 'free'"),
        ({"disc": {}}, "no plugin registers 'disc'"),
    ],
)
async def test_settings_that_nothing_declares_stop_the_start_with_the_reason(
    agent: AgentModel, section: dict[str, Any], words: str
) -> None:
    register(agent, "disk", Check(GOOD), settings=Limits)
    agent.configure("runtimes", plugins=section)
    with pytest.raises(InvalidConfig, match=words):
        async with agent.running():
            pass


async def test_a_check_that_holds_the_event_loop_is_named_in_the_log(agent: AgentModel) -> None:
    with structlog.testing.capture_logs() as said:

        def is_named() -> bool:
            return any(line.get("task") == "plugin acme: health-check/slow check" for line in said)

        async def holds() -> CheckResult:
            for _ in range(1000):
                if is_named():
                    break
                time.sleep(0.01)  # noqa: ASYNC251 - holds the event loop
            return GOOD

        register(agent, "slow", Check(holds))
        async with agent.running():
            await agent.until(is_named)


async def test_an_agent_without_registrations_makes_nothing_for_them(agent: AgentModel) -> None:
    async with agent.running() as backend:
        assert "plugin-health" not in {task.name for part in agent.parts.parts for task in part.tasks}
        assert not (agent.config.root_dir / "plugins").exists()
        assert "kubeletx_plugin_callback" not in render(await backend.about.metrics()).decode()
