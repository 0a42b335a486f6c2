"""A plugin that cannot make its runtime costs this runtime alone, with a reason that names plugin, place and remedy."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from kubeletx.api import (
    Endpoint,
    Host,
    InvalidConfig,
    PodUid,
    RuntimeName,
    SupportsEvents,
    SupportsExec,
    SupportsPortForward,
    SupportsStats,
    Unavailable,
)
from kubeletx.runtimes.binding.bindings import Binding
from kubeletx.runtimes.endpoints.failed_plugins import FailedPlugin
from kubeletx.runtimes.endpoints.grammar import parse_endpoints
from kubeletx.runtimes.endpoints.kinds import KindTable, RuntimeKind
from kubeletx.runtimes.plugins.identity import PluginIdentity
from kubeletx.testing import FakeRuntime
from kubeletx_testing.bad_plugins import lacks_methods

from .conftest import World

BAD = PluginIdentity("bad", "kubeletx-bad", "0.1.0")


class Constructor:
    """A constructor of a plugin; raises `error` if there is one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.error: BaseException | None = None
        self.calls = 0

    def __call__(self, endpoint: Endpoint, settings: Any, host: Host) -> FakeRuntime:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self._world.make(endpoint, settings, host)


@pytest.fixture
def bad(world: World) -> Constructor:
    """The constructor of kind ``bad`` of a plugin that is not of this repository."""
    made = Constructor(world)
    world.plan_more = {"isolation": {"bad": "none"}}
    world.kinds.add(
        RuntimeKind(
            name="bad",
            factory=made,
            workload_types=("container",),
            schemes=("bad",),
            plugin=BAD.name,
            distribution=BAD.distribution,
            version=BAD.version,
        )
    )
    world.endpoints = (
        Endpoint(name=RuntimeName("b"), workload_type="container", url="bad://b", kind="bad"),
        world.endpoint("one"),
    )
    return made


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ZeroDivisionError("oops"), "ZeroDivisionError: oops"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (InvalidConfig(field="url", problem="has no host", fix="add one"), "url: has no host; add one"),
    ],
)
async def test_a_constructor_that_raises_costs_its_runtime_alone(
    world: World, bad: Constructor, error: BaseException, words: str
) -> None:
    bad.error = error
    async with started(world) as registry:
        await world.until(lambda: registry.get("one").is_listed)
        await world.until(lambda: registry.get("b").state.reason == "PluginFailed")
        state = registry.get("b").state
        assert not state.is_ready
        assert state.message.startswith(
            f"runtime b: plugin bad (kubeletx-bad 0.1.0), kind bad: the constructor failed: {words}"
        )
        assert "test_broken_runtimes.py:" in state.message
        assert "kubeletx runtime reload" in state.message
        assert registry.get("one").state.ready
        assert [handle.name for handle in registry.handles()] == ["b", "one"]


async def test_a_broken_runtime_works_after_a_reload_once_the_plugin_is_repaired(
    world: World, bad: Constructor
) -> None:
    bad.error = RuntimeError("no backend")
    async with started(world) as registry:
        await registry.fleet.repair()
        assert "no backend" in registry.fleet.broken[RuntimeName("b")]
        bad.error = None
        await registry.fleet.repair()
        assert not registry.fleet.broken
        await world.until(lambda: registry.get("b").state.ready)
        assert [handle.name for handle in registry.handles()] == ["b", "one"]
        before = bad.calls
        await registry.fleet.repair()
        assert bad.calls == before


async def test_a_drop_in_whose_constructor_raises_is_a_broken_runtime_too(
    world: World, bad: Constructor
) -> None:
    world.endpoints = world.endpoints[1:]
    directory = world.root / "runtimes.d"
    directory.mkdir()
    (directory / "50-b.yaml").write_text("name: b\nworkloadType: container\nurl: bad://b?plugin=bad\n")
    bad.error = SystemExit(1)
    async with started(world) as registry:
        assert world.errors == ()
        await world.until(lambda: "SystemExit: 1" in registry.get("b").state.message)
        assert await registry.fleet.reload_dropins() == ()
        assert bad.calls == 1


async def test_a_runtime_whose_constructor_raises_is_not_added(world: World, bad: Constructor) -> None:
    async with started(world) as registry:
        bad.error = RuntimeError("no backend")
        with pytest.raises(Unavailable, match="kind bad: the constructor failed: RuntimeError: no backend"):
            await registry.add(name="c", workload_type="container", url="bad://c?plugin=bad")
        assert registry.find("c") is None
        assert not list((world.root / "runtimes.d").glob("*"))


async def test_an_object_that_is_not_a_runtime_is_named_with_the_methods_that_it_lacks(world: World) -> None:
    class Half:
        async def open(self) -> None: ...

    world.kinds = KindTable(
        [
            world.kind("fake", "container"),
            RuntimeKind(
                name="half",
                factory=lambda *_: cast("Any", Half()),
                workload_types=("container",),
                schemes=("half",),
            ),
        ]
    )
    half = Endpoint(name=RuntimeName("h"), workload_type="container", url="half://h", kind="half")
    world.endpoints = (half, world.endpoint("one"))
    async with started(world) as registry:
        await world.until(lambda: "class Half lacks close, traits," in registry.get("h").state.message)


async def test_a_capability_whose_object_lacks_methods_is_named_when_the_runtime_is_opened(
    world: World,
) -> None:
    world.kinds = KindTable(
        [
            world.kind("fake", "container"),
            RuntimeKind(
                name="half", factory=lacks_methods.make, workload_types=("container",), schemes=("half",)
            ),
        ]
    )
    half = Endpoint(name=RuntimeName("h"), workload_type="container", url="half://h", kind="half")
    world.endpoints = (half, world.endpoint("one"))
    with capture_logs() as lines:
        async with started(world) as registry:
            await world.until(lambda: registry.get("h").state.ready)
            assert registry.get("h").capability(SupportsEvents) is not None
            for protocol in (SupportsStats, SupportsExec, SupportsPortForward):
                assert registry.get("h").capability(protocol) is None
    found = {one["capability"]: one for one in lines if one["event"] == "Failed to query a capability"}
    assert sorted(found) == ["SupportsExec", "SupportsPortForward", "SupportsStats"]
    assert found["SupportsExec"]["runtime"] == "h"
    assert "class HalfExec, which lacks exec; add it, or return None" in found["SupportsExec"]["err"]
    assert "KeyError: 'SupportsPortForward' at " in found["SupportsPortForward"]["err"]


async def test_a_constructor_that_ended_the_process_is_not_called_again(
    world: World, bad: Constructor
) -> None:
    marker = world.root / "plugin-calls" / "make.b"
    marker.parent.mkdir()
    marker.write_text(json.dumps({"plugin": str(BAD)}))
    async with started(world) as registry:
        await world.until(lambda: "process ended" in registry.get("b").state.message)
        assert f"rm '{marker}'" in registry.get("b").state.message
        assert bad.calls == 0
        marker.unlink()
        await registry.fleet.repair()
        await world.until(lambda: registry.get("b").state.ready)
    assert not marker.exists()


def failed(reason: str = "ImportError: no module", **more: Any) -> KindTable:
    """Kinds of a node on which plugin ``bad`` is installed and not loaded."""
    kinds = KindTable()
    kinds.failed = (FailedPlugin(plugin=BAD, reason=reason, **more),)
    return kinds


def test_an_endpoint_of_a_plugin_that_failed_to_load_is_not_refused() -> None:
    (endpoint,) = parse_endpoints(["rocket:b:bad://b?plugin=bad"], [], failed())
    assert endpoint.kind == "bad"
    (endpoint,) = parse_endpoints(["container:b:bad://b"], [], failed())
    assert endpoint.kind == "unknown"


def test_an_endpoint_that_a_failed_plugin_cannot_serve_is_refused() -> None:
    kind = RuntimeKind(
        name="bad", factory=cast("Any", print), workload_types=("container",), schemes=("bad",)
    )
    with pytest.raises(InvalidConfig, match="no installed plugin serves container over other://"):
        parse_endpoints(["container:b:other://b"], [], failed(kinds=(kind,), knows_kinds=True))
    with pytest.raises(InvalidConfig, match="unknown workload type 'rocket'"):
        parse_endpoints(["rocket:b:other://b"], [], failed(kinds=(kind,), knows_kinds=True))


def test_another_plugin_does_not_take_over_the_endpoint_that_has_the_name_of_a_failed_one() -> None:
    kinds = failed()
    kinds.add(
        RuntimeKind(
            name="other",
            factory=cast("Any", print),
            workload_types=("container",),
            schemes=("unix",),
            default_claim=True,
        )
    )
    (endpoint,) = parse_endpoints(["container:bad:unix:///run/bad.sock"], [], kinds)
    assert endpoint.kind == "unknown"
    (endpoint,) = parse_endpoints(["container:x:unix:///run/x.sock"], [], kinds)
    assert endpoint.kind == "other"


async def test_a_runtime_whose_plugin_failed_to_load_names_the_plugin_and_its_error(world: World) -> None:
    world.kinds.failed = (FailedPlugin(plugin=BAD, reason="ImportError: no module"),)
    world.endpoints = (*parse_endpoints(["rocket:b:bad://b"], [], world.kinds), world.endpoint("one"))
    async with started(world) as registry:
        words = "plugin bad (kubeletx-bad 0.1.0) is not loaded: ImportError: no module"
        await world.until(lambda: words in registry.get("b").state.message)
        world.kinds.failed = ()
        world.kinds.add(
            RuntimeKind(
                name="bad",
                factory=world.make,
                workload_types=("rocket",),
                schemes=("bad",),
                default_claim=True,
            )
        )
        await registry.fleet.repair()
        await world.until(lambda: registry.get("b").state.ready)
        assert registry.get("b").kind == "bad"


async def test_a_runtime_whose_pods_were_made_by_a_kind_that_is_not_loaded_is_broken(world: World) -> None:
    def kinds(*names: str) -> KindTable:
        default, *more = (world.kind(name, "container") for name in names)
        return KindTable([default, *(msgspec.structs.replace(kind, default_claim=False) for kind in more)])

    def started_with(*names: str) -> Any:
        world.kinds = kinds(*names)
        world.endpoints = parse_endpoints(
            ["container:one:fake://one", "container:quark:fake://quark"], [], world.kinds
        )
        world.runtimes.clear()
        return started(world)

    pod = PodUid("uid-a")
    async with started_with("containerd", "quark") as registry:
        await registry.bind(
            Binding(uid=pod, runtime=RuntimeName("quark"), kind="", bound_at=world.clock.now())
        )
    async with started_with("containerd") as registry:
        await world.until(lambda: registry.get("one").state.ready)
        await world.until(lambda: registry.get("quark").state.reason == "PluginFailed")
        assert registry.get("quark").state.message.startswith(
            "runtime quark: its pods were made by kind 'quark', which is not loaded; install its plugin"
        )
        assert list(world.runtimes) == ["one"]
        world.kinds.failed = (FailedPlugin(plugin=BAD, reason="ImportError: no module"),)
        await registry.fleet.repair()
        words = "not loaded; plugin bad (kubeletx-bad 0.1.0) is not loaded: ImportError: no module"
        assert words in registry.fleet.broken[RuntimeName("quark")]
        for kind in kinds("other", "quark"):
            world.kinds.add(kind)
        await registry.fleet.repair()
        await world.until(lambda: registry.get("quark").state.ready)
        assert (registry.get("quark").kind, registry.get("one").kind) == ("quark", "containerd")
        await registry.unbind(pod)
    async with started_with(
        "containerd"
    ) as registry:  # an operator may change the kind of a name without pods
        await world.until(lambda: registry.get("quark").state.ready)
        assert registry.get("quark").kind == "containerd"


def test_settings_of_a_plugin_that_failed_to_load_do_not_stop_the_start() -> None:
    assert failed().decode_settings({"bad": {"speed": 1}}) == {}
    with pytest.raises(InvalidConfig, match="no plugin registers 'typo'"):
        failed(knows_kinds=True).decode_settings({"typo": {}})


def started(world: World) -> Any:
    """A registry that runs, also if some runtimes never list their pods."""
    return world.running(wait=False)
