"""The runtime part of the admin backend: add, cordon, drain, remove, describe."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import (
    AlreadyExists,
    Conflict,
    InvalidConfig,
    KubeletxError,
    NotFound,
    RuntimeName,
    SupportsImages,
    TimedOut,
)
from kubeletx.node.pressure import ImageDisk
from kubeletx.node.thresholds import Observation
from kubeletx.server.backend import AdminBackend
from tests.unit.agent.agent_model import AgentModel, a_pod


async def test_runtimes_are_listed_in_order_with_their_default(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        one, two = await backend.runtimes.list_runtimes()
        assert (one.name, one.status, one.kind, one.default, one.pods) == ("one", "Ready", "fake", True, 1)
        assert (two.name, two.default, two.pods, two.origin) == ("two", False, 0, "flag")
        assert one.version == "fake 1.0"


async def test_each_runtime_says_whether_its_image_service_is_the_default_of_its_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = AgentModel(tmp_path, names=("one", "two", "kvm"))
    async with agent.running() as backend:
        await backend.images.list_images()
        services = [view.image_service for view in await backend.runtimes.list_runtimes()]
        assert [(s.name, s.workload_type, s.url, s.store, s.is_default) for s in services if s] == [
            ("one", "container", "fake://one", "fake:one", True),
            ("two", "container", "fake://two", "fake:two", False),
            ("kvm", "vm", "fake://kvm", "fake:kvm", True),
        ]
        await backend.runtimes.cordon("one")
        services = [view.image_service for view in await backend.runtimes.list_runtimes()]
        assert [s.is_default for s in services if s] == [False, True, True]


async def test_the_space_of_each_image_store_is_shown_also_while_the_runtime_hangs(agent: AgentModel) -> None:
    def measure(
        root: Path, mounts: Mapping[RuntimeName, tuple[str, ...]], mono: float
    ) -> tuple[tuple[ImageDisk, ...], tuple[Observation, ...]]:
        on_disk = frozenset(name for name, paths in mounts.items() if paths) - {"two"}
        seen = Observation(signal="imagefs.available", place="disk 8:1", available=30, capacity=100, at=mono)
        return (ImageDisk(place="disk 8:1", path="/", runtimes=on_disk),), (seen,)

    agent.host = replace(agent.host, measure=measure)
    async with agent.running() as backend:

        async def space() -> list[tuple[int | None, int | None]]:
            services = [view.image_service for view in await backend.runtimes.list_runtimes()]
            return [(one.available_bytes, one.capacity_bytes) for one in services if one]

        for is_hung in (False, True):
            agent.runtimes["one"].script("*", hang=is_hung)
            for _ in range(30):
                await agent.clock.run_for(10)
            assert await space() == [(30, 100), (None, None)]


async def test_a_runtime_without_images_has_no_image_service(agent: AgentModel) -> None:
    agent.without = (SupportsImages,)
    async with agent.running() as backend:
        assert {view.image_service for view in await backend.runtimes.list_runtimes()} == {None}


async def test_a_cordoned_default_gives_way_also_after_a_restart(agent: AgentModel) -> None:
    async with agent.running() as backend:
        assert (await backend.runtimes.cordon("one")).cordoned
        await agent.apply(a_pod())
        assert agent.alive("two") == ["web"]
    async with agent.running() as backend:
        one, two = await backend.runtimes.list_runtimes()
        assert (one.cordoned, one.default, two.default) == (True, False, True)
        assert not (await backend.runtimes.uncordon("one")).cordoned


async def test_an_added_runtime_takes_pods_and_survives_a_restart(agent: AgentModel) -> None:
    async with agent.running() as backend:
        view = await backend.runtimes.add_runtime("container:three:fake://three")
        assert (view.name, view.url) == ("three", "fake://three")
        assert view.origin.endswith("runtimes.d/three.yaml") or "three" in view.origin
        await agent.apply(a_pod(runtime="three"))
    async with agent.running() as backend:
        assert [view.name for view in await backend.runtimes.list_runtimes()] == ["one", "two", "three"]
        await agent.until(lambda: agent.phase("web") == "Running")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("container:one:fake://again", AlreadyExists | InvalidConfig),
        ("container:default:fake://x", InvalidConfig),
        ("vm:machines:fake://x", InvalidConfig),
        ("container:x:nobody://x", InvalidConfig),
        ("nonsense", InvalidConfig),
    ],
)
async def test_an_endpoint_that_the_flag_would_refuse_is_refused(
    agent: AgentModel, text: str, error: type[KubeletxError]
) -> None:
    async with agent.running() as backend:
        with pytest.raises(KubeletxError) as raised:
            await backend.runtimes.add_runtime(text)
        assert isinstance(raised.value, error)
        assert len(await backend.runtimes.list_runtimes()) == 2


async def test_a_runtime_with_pods_is_not_removed(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        with pytest.raises(Conflict, match="1 pod is on runtime 'one'"):
            await lines(agent, backend, "one")
        with pytest.raises(NotFound, match="runtimes: one, two"):
            await lines(agent, backend, "three")


async def test_a_drain_ends_pods_in_order_and_unnamed_ones_come_back_elsewhere(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("free"))
        await agent.apply(a_pod("named", runtime="one"))
        said = await lines(agent, backend, "one", drain=True)
        assert said[0] == "runtime one cordoned"
        assert sorted(said[1:-1]) == ["pod default/free ended", "pod default/named ended"]
        assert said[-1] == "runtime one removed"
        await agent.until(lambda: agent.alive("two") == ["free"])
        assert agent.alive("one") == []
        named = agent.parts.manager.find("default", "named")
        assert named is not None
        await agent.until(lambda: (w := named.facts.waiting) is not None and w.reason == "RuntimeNotFound")
    async with agent.running() as backend:
        assert [view.name for view in await backend.runtimes.list_runtimes()] == ["two"]


async def test_a_drain_notices_a_pod_that_ends_while_its_reader_is_busy(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("slow"))
        await agent.apply(a_pod("quick"))
        slow = agent.parts.manager.find("default", "slow")
        assert slow is not None
        assert slow.facts.snapshot is not None
        stuck = agent.runtimes["one"].script("stop_unit", hang=True, key=slow.facts.snapshot.units[0].id)

        async def read() -> list[str]:
            said = []
            async for step in backend.runtimes.remove_runtime(
                "one", drain=True, force=False, timeout_seconds=5.0
            ):
                said.append(step.message)
                if step.message == "pod default/quick ended":
                    stuck.release()
                    while agent.parts.manager.workers.get(slow.uid) is slow:
                        await asyncio.sleep(0)
            return said

        said = await agent.done(read())
        assert said[1:] == ["pod default/quick ended", "pod default/slow ended", "runtime one removed"]


async def test_a_drain_that_takes_too_long_says_what_is_left_and_keeps_the_cordon(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        stuck = agent.runtimes["one"].script("stop_unit", hang=True)
        with pytest.raises(TimedOut, match=r"still there: default/web; it stays cordoned"):
            await lines(agent, backend, "one", drain=True, timeout_seconds=0.2)
        one, _ = await backend.runtimes.list_runtimes()
        assert one.cordoned
        stuck.release()


async def test_force_ends_pods_of_a_runtime_that_does_not_answer(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        agent.runtimes["one"].backend.kill()
        await agent.until(lambda: not agent.parts.registry.get("one").state.reachable)
        await lines(agent, backend, "one", force=True)
        assert [view.name for view in await backend.runtimes.list_runtimes()] == ["two"]
        await agent.until(lambda: agent.alive("two") == ["web"])


async def test_describe_names_capabilities_pods_and_calls(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        detail = await backend.runtimes.describe_runtime("one")
        assert detail.capabilities["Exec"]
        assert not detail.capabilities["CriPassthrough"]
        assert detail.pods == ("default/web",)
        assert detail.agent_calls["create_sandbox"] == 1
        assert detail.store_id
        assert {condition.type for condition in detail.conditions} == {"RuntimeReady", "NetworkReady"}


async def test_describe_of_a_runtime_that_is_away_has_what_is_known(agent: AgentModel) -> None:
    async with agent.running() as backend:
        agent.runtimes["one"].backend.kill()
        await agent.until(lambda: not agent.parts.registry.get("one").state.reachable)
        detail = await backend.runtimes.describe_runtime("one")
        assert detail.runtime.status == "NotReady"
        assert detail.conditions == ()


async def test_a_watch_reports_the_whole_list_after_each_change(agent: AgentModel) -> None:
    async with agent.running() as backend:
        watch = backend.runtimes.watch_runtimes()
        assert [view.cordoned for view in await anext(watch)] == [False, False]
        await backend.runtimes.cordon("two")
        assert [view.cordoned for view in await agent.done(anext(watch))] == [False, True]
        await watch.aclose()  # type: ignore[attr-defined]


async def lines(
    agent: AgentModel,
    backend: AdminBackend,
    name: str,
    *,
    drain: bool = False,
    force: bool = False,
    timeout_seconds: float = 10.0,
) -> list[str]:
    """What a removal says, line by line."""

    async def read() -> list[str]:
        steps = backend.runtimes.remove_runtime(
            name, drain=drain, force=force, timeout_seconds=timeout_seconds
        )
        return [step.message async for step in steps]

    return await agent.done(read())


async def test_a_runtime_without_a_network_is_not_ready_here_and_in_the_nodes_conditions(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        agent.runtimes["two"].network_ready = False

        async def statuses() -> dict[str, tuple[str, str]]:
            return {one.name: (one.status, one.reason) for one in await backend.runtimes.list_runtimes()}

        for _ in range(60):
            await agent.clock.run_for(1)
            found = await statuses()
            if found["two"][0] != "Ready":
                break
        assert found == {"one": ("Ready", ""), "two": ("NotReady", "NetworkNotReady")}
        node = await backend.node.get_node()
        conditions = {one.type: one.status for one in node.status.conditions}
        assert conditions["kubeletx.io/RuntimeReady-two"] == "False"
