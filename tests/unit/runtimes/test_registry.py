"""`RuntimeRegistry`: order, look-ups, bindings, and changes at run time that survive a restart."""

from __future__ import annotations

import asyncio
import json
import timeit
from datetime import UTC, datetime

import pytest

from kubeletx.api import Conflict, InvalidConfig, NotFound, PodUid, RuntimeName, Unavailable
from kubeletx.kube.types.core import ObjectMeta, Pod, PodSpec
from kubeletx.runtimes.binding.bindings import Binding
from kubeletx.runtimes.registry import RuntimeRegistry
from tests.unit.runtimes.conftest import World, sandbox_of, unit_of


def pod(name: str, **spec: object) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"), spec=PodSpec(**spec))  # type: ignore[arg-type]


def binding(name: str, runtime: str) -> Binding:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    return Binding(uid=PodUid(f"uid-{name}"), runtime=RuntimeName(runtime), kind="", name=name, bound_at=at)


async def start(registry: RuntimeRegistry, runtime: str, name: str) -> None:
    handle = registry.get(runtime)
    spec = sandbox_of(runtime, name)
    sandbox_id = await handle.create_sandbox(spec)
    unit_id = await handle.create_unit(sandbox_id, unit_of(runtime, name), spec)
    await handle.start_unit(unit_id)


@pytest.fixture
def two(world: World) -> World:
    world.endpoints = (world.endpoint("one"), world.endpoint("two"), world.endpoint("kvm", "vm"))
    return world


async def test_the_first_listed_of_a_type_is_its_default_until_it_is_cordoned(two: World) -> None:
    async with two.running() as registry:
        assert [h.name for h in registry.handles()] == ["one", "two", "kvm"]
        default = registry.default_for("container")
        assert default is not None
        assert default.name == "one"
        registry.cordon("one")
        assert registry.default_for("container") is registry.get("two")
        registry.cordon("two")
        assert registry.default_for("container") is None
        assert registry.default_for("vm") is registry.get("kvm")


async def test_the_eight_operations(two: World) -> None:
    async with two.running() as registry:
        one = registry.get("one")
        assert registry.all_runtime_services() == registry.handles()
        assert registry.all_image_services() == tuple(two.runtimes.values())
        await registry.bind(binding("a", "two"))
        assert registry.runtime_by_pod_id(PodUid("uid-a")).name == "two"
        assert registry.runtime_by_pod(pod("a")).name == "two"
        assert registry.runtime_by_pod(pod("new")).name == "one"
        assert registry.image_service_by_pod(pod("a")) is two.runtimes["two"]
        assert (await registry.runtime_status(one)).runtime_ready
        assert await registry.runtime_version(one) == "1.0"
        assert (await registry.typed_version(one)).name == "fake"
        with pytest.raises(NotFound, match="pod x is not bound"):
            registry.runtime_by_pod_id(PodUid("x"))
        with pytest.raises(NotFound, match=r"no runtime for pod default/b: .*no runtime 'none'"):
            registry.runtime_by_pod(pod("b", runtime_service_name="none"))
        with pytest.raises(NotFound, match="no runtime 'three' on this node; runtimes: one, two, kvm"):
            registry.get("three")


async def test_a_look_up_is_a_dictionary_look_up(two: World) -> None:
    async with two.running() as registry:
        await registry.bind(binding("a", "two"))
        uid = PodUid("uid-a")
        assert min(timeit.repeat(lambda: registry.runtime_by_pod_id(uid), number=1000, repeat=20)) < 0.005


async def test_a_binding_survives_a_restart_and_never_changes(two: World) -> None:
    async with two.running() as registry:
        await asyncio.gather(*(registry.bind(binding(f"p{i}", "two")) for i in range(100)))
        await registry.bind(binding("p1", "two"))
        with pytest.raises(Conflict, match="bound to runtime 'two' already"):
            await registry.bind(binding("p1", "one"))
        await registry.unbind(PodUid("uid-p0"))
    two.endpoints = tuple(reversed(two.endpoints))
    async with two.running() as registry:
        assert len(registry.bindings()) == 99
        assert registry.runtime_by_pod_id(PodUid("uid-p1")).name == "two"
        assert registry.bindings()[PodUid("uid-p1")].kind == "fake"


async def test_a_binding_to_a_runtime_that_is_gone_is_reported(two: World) -> None:
    async with two.running() as registry:
        await registry.bind(binding("a", "two"))
    two.endpoints = two.endpoints[:1]
    async with two.running() as registry:
        with pytest.raises(NotFound, match="bound to runtime 'two', which is not configured"):
            registry.runtime_by_pod_id(PodUid("uid-a"))


async def test_orphans_are_ours_without_a_binding(two: World) -> None:
    async with two.running() as registry:
        await registry.bind(binding("a", "one"))
        await start(registry, "one", "a")
        await start(registry, "two", "b")
        await registry.get("one").look(PodUid("uid-a"))
        await registry.get("two").look(PodUid("uid-b"))
        assert {uid: handle.name for uid, (handle, _) in registry.orphans().items()} == {"uid-b": "two"}
        assert registry.restore(binding("b", "two"))
        assert not registry.restore(binding("b", "one"))
        assert registry.orphans() == {}
    async with two.running() as registry:
        assert registry.runtime_by_pod_id(PodUid("uid-b")).name == "two"


async def test_an_added_runtime_works_at_once_and_survives_a_restart(two: World) -> None:
    async with two.running() as registry:
        await registry.add(name="three", workload_type="container", url="fake://three")
        await two.until(lambda: registry.get("three").state.ready)
        assert "three" in two.listener.runtimes
        with pytest.raises(InvalidConfig, match="the name 'three' is taken"):
            await registry.add(name="three", workload_type="container", url="fake://x")
        with pytest.raises(InvalidConfig, match="no installed plugin serves container over http://"):
            await registry.add(name="four", workload_type="container", url="http://x")
    async with two.running() as registry:
        assert [h.name for h in registry.handles()] == ["one", "two", "kvm", "three"]
        await registry.remove("three")
    async with two.running() as registry:
        assert registry.find("three") is None


async def test_reloading_leaves_a_runtime_alone_that_was_just_added(two: World) -> None:
    async with two.running() as registry:
        added = await registry.add(
            name="three", workload_type="container", url="fake://three%3Bx?plugin=fake", image_url="/images"
        )
        assert added.endpoint.image_url == "unix:///images"
        assert await registry.fleet.reload_dropins() == ()
        assert registry.get("three") is added


async def test_what_cannot_be_made_lasting_is_not_done(two: World) -> None:
    async with two.running() as registry:
        (two.root / "runtimes.d").write_text("in the way")
        (two.root / "cordons").write_text("in the way")
        with pytest.raises(Unavailable, match="cannot write"):
            await registry.add(name="three", workload_type="container", url="fake://three")
        with pytest.raises(Unavailable, match="cannot write"):
            await registry.remove("one")
        with pytest.raises(Unavailable, match="cannot write"):
            registry.cordon("one")
        assert [h.name for h in registry.handles()] == ["one", "two", "kvm"]
        assert registry.get("one").state.ready
        assert not registry.get("one").state.cordoned


async def test_a_removed_runtime_of_the_flags_stays_removed_until_it_is_added_again(two: World) -> None:
    async with two.running() as registry:
        await registry.remove("two")
        assert registry.find("two") is None
    async with two.running() as registry:
        assert [h.name for h in registry.handles()] == ["one", "kvm"]
        await registry.add(name="two", workload_type="container", url="fake://two")
    async with two.running() as registry:
        assert [h.name for h in registry.handles()] == ["one", "two", "kvm"]
        await registry.remove("two")
        await registry.add(name="two", workload_type="container", url="fake://elsewhere")
    async with two.running() as registry:
        assert [h.name for h in registry.handles()] == ["one", "kvm", "two"]
        assert registry.get("two").endpoint.url == "fake://elsewhere"
        assert two.errors == ()


async def test_a_runtime_with_pods_is_not_removed_without_force(two: World) -> None:
    async with two.running() as registry:
        await registry.bind(binding("a", "one"))
        with pytest.raises(Conflict, match="1 pod is on runtime 'one'"):
            await registry.remove("one")
        assert registry.bound_uids("one") == ("uid-a",)


async def test_a_pod_that_is_just_being_bound_keeps_its_runtime(two: World) -> None:
    async with two.running() as registry:
        binding_it = asyncio.create_task(registry.bind(binding("a", "two")))
        await asyncio.sleep(0)
        with pytest.raises(Conflict, match="1 pod is on runtime 'two'"):
            await registry.remove("two")
        await binding_it
        assert registry.runtime_by_pod_id(PodUid("uid-a")) is registry.get("two")


async def test_no_pod_is_bound_to_a_runtime_that_is_being_removed(two: World) -> None:
    async with two.running() as registry:
        removing = asyncio.create_task(registry.remove("two"))
        await asyncio.sleep(0)
        with pytest.raises(NotFound, match="runtime 'two'"):
            await registry.bind(binding("a", "two"))
        await removing
        assert registry.find("two") is None
        assert not registry.bindings()


async def test_no_pod_is_bound_to_a_runtime_whose_drop_in_is_gone(two: World) -> None:
    directory = two.root / "runtimes.d"
    directory.mkdir()
    (directory / "x.yaml").write_text("name: x\nworkloadType: container\nurl: fake://x\n")
    async with two.running() as registry:
        (directory / "x.yaml").unlink()
        reloading = asyncio.create_task(registry.fleet.reload_dropins())
        await asyncio.sleep(0)
        with pytest.raises(NotFound, match="runtime 'x'"):
            await registry.bind(binding("a", "x"))
        assert await reloading == ()
        assert not registry.bindings()


async def test_after_a_forced_removal_the_leftovers_go_when_the_runtime_returns(two: World) -> None:
    async with two.running() as registry:
        await registry.bind(binding("a", "one"))
        await start(registry, "one", "a")
        await registry.get("one").look(PodUid("uid-a"))
        await registry.remove("one", force=True)
        assert registry.bindings() == {}
        assert len(two.runtimes["one"].backend.sandboxes) == 1
    backend = two.runtimes["one"].backend
    async with two.running() as registry:
        await registry.add(name="one", workload_type="container", url="fake://one")
        await two.until(lambda: not backend.sandboxes)
        assert registry.orphans() == {}


async def test_a_pod_abandoned_during_an_outage_is_cleared_after_it(two: World) -> None:
    async with two.running() as registry:
        await registry.bind(binding("a", "one"))
        await start(registry, "one", "a")
        await registry.get("one").look(PodUid("uid-a"))
        backend = two.runtimes["one"].backend
        backend.kill()
        await two.until(lambda: not registry.get("one").state.reachable)
        await registry.abandon_binding(PodUid("uid-a"))
        assert registry.orphans() == {}
        backend.revive()
        await two.until(lambda: not backend.sandboxes, 200)


async def test_a_cordon_survives_a_restart_and_can_be_lifted(two: World) -> None:
    async with two.running() as registry:
        registry.cordon("one")
        registry.cordon("one")
    async with two.running() as registry:
        assert registry.get("one").state.cordoned
        registry.cordon("one", False)
    async with two.running() as registry:
        assert not registry.get("one").state.cordoned


async def test_drop_in_files_add_and_remove_runtimes_without_a_restart(two: World) -> None:
    directory = two.root / "runtimes.d"
    directory.mkdir()
    (directory / "10-x.yaml").write_text("name: x\nworkloadType: container\nurl: fake://x?plugin=fake\n")
    (directory / "20-y.json").write_text(
        json.dumps({"name": "y", "workloadType": "vm", "url": "fake://y", "imageUrl": "/i"})
    )
    async with two.running() as registry:
        assert [h.name for h in registry.handles()] == ["one", "two", "kvm", "x", "y"]
        assert registry.get("y").endpoint.image_url == "unix:///i"
        (directory / "10-x.yaml").unlink()
        (directory / "30-z.yaml").write_text("name: z\nworkloadType: container\nurl: fake://z\n")
        assert await registry.fleet.reload_dropins() == ()
        assert [h.name for h in registry.handles()] == ["one", "two", "kvm", "y", "z"]
        await two.until(lambda: registry.get("z").state.ready)
        await registry.bind(binding("a", "z"))
        (directory / "30-z.yaml").unlink()
        (error,) = await registry.fleet.reload_dropins()
        assert "runtime 'z' has pods" in str(error)
        assert registry.get("z").state.ready


async def test_a_reload_that_meets_another_one_follows_the_newer_file(two: World) -> None:
    directory = two.root / "runtimes.d"
    directory.mkdir()
    drop_in = directory / "x.yaml"
    text = "name: x\nworkloadType: container\nurl: fake://"
    drop_in.write_text(text + "x\n")
    async with two.running() as registry:
        drop_in.write_text(text + "older\n")
        first = asyncio.create_task(registry.fleet.reload_dropins())
        await asyncio.sleep(0)
        drop_in.write_text(text + "newer\n")
        assert await registry.fleet.reload_dropins() == ()
        assert await first == ()
        await two.until(lambda: registry.get("x").state.ready)
        assert registry.get("x").endpoint.url == "fake://newer"
        assert [task.get_name() for task in asyncio.all_tasks()].count("runtime-x") == 1


async def test_a_reload_during_a_removal_leaves_the_runtime_to_it(two: World) -> None:
    directory = two.root / "runtimes.d"
    directory.mkdir()
    (directory / "x.yaml").write_text("name: x\nworkloadType: container\nurl: fake://x\n")
    async with two.running() as registry:
        removing = asyncio.create_task(registry.remove("x"))
        await asyncio.sleep(0)
        assert await registry.fleet.reload_dropins() == ()
        await removing
        assert registry.find("x") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: [", "drop-in: "),
        ("name: x\nworkloadType: container\n", "missing required field `url`"),
        ("name: x\nworkloadType: container\nurl: fake://x\ncolour: red\n", "unknown field `colour`"),
        ("name: one\nworkloadType: container\nurl: fake://x\n", "the name 'one' is taken"),
        ("name: default\nworkloadType: container\nurl: fake://x\n", "reserved"),
        ("name: x\nworkloadType: odd\nurl: fake://x\n", "unknown workload type 'odd'"),
        ("", "0 documents instead of one"),
        ("#" * 70_000, "larger than 65536 bytes"),
    ],
)
async def test_a_bad_drop_in_is_named_and_leaves_the_others_alone(two: World, text: str, words: str) -> None:
    directory = two.root / "runtimes.d"
    directory.mkdir()
    (directory / "10-bad.yaml").write_text(text)
    (directory / "20-good.yaml").write_text("name: good\nworkloadType: container\nurl: fake://g\n")
    async with two.running() as registry:
        assert [h.name for h in registry.handles()] == ["one", "two", "kvm", "good"]
        (error,) = two.errors
        assert str(directory / "10-bad.yaml") in str(error)
        assert words in str(error)
        assert len(await registry.fleet.reload_dropins()) == 1


@pytest.mark.parametrize("failing", ["runtime_changed", "pod_changed"])
async def test_one_failing_runtime_never_ends_the_others(two: World, failing: str) -> None:
    failed: list[str] = []

    class FailingListener:
        """With `runtime_changed` the task of the connection fails, with `pod_changed` the task that lists pods."""

        def runtime_changed(self, name: RuntimeName) -> None:
            self._called("runtime_changed", name)

        def pod_changed(self, name: RuntimeName, uid: PodUid, event: object) -> None:
            self._called("pod_changed", name)

        def _called(self, method: str, name: RuntimeName) -> None:
            if (method, name) == (failing, "one"):
                failed.append(name)
                raise RuntimeError("bug")

    async with two.running() as registry:
        await start(registry, "one", "a")
        (unit,) = (await registry.get("one").look(PodUid("uid-a"))).units
        registry.subscribe(FailingListener())
        backend = two.runtimes["one"].backend
        backend.exit_unit(unit.id) if failing == "pod_changed" else backend.kill()
        await two.clock.run_for(30)
        assert failed
        assert registry.get("two").state.ready
        await start(registry, "two", "b")
        assert not (await registry.get("two").look(PodUid("uid-b"))).is_empty
