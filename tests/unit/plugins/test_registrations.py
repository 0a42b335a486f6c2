"""What plugins register beside runtimes: names, refusals, and one broken plugin that stops no other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kubeletx.agent.config.tree import PluginSettings
from kubeletx.api import ENTRY_POINT_GROUP, BaseVolumeDriver, ObjectRef, ReadyVolume, VolumeRequest, hookimpl
from kubeletx.plugins.host import PluginHostParts
from kubeletx.plugins.loading import Plugins, load_plugins
from kubeletx.plugins.services import PluginServices
from kubeletx.runtimes.plugins.call_markers import CallMarkers
from kubeletx.testing import FakeClock, FakeEventSink, FakeRecords


def plugin(monkeypatch: pytest.MonkeyPatch, name: str, **hooks: Any) -> EntryPoint:
    """An entry point whose module has these hooks."""
    module = ModuleType(f"registering_{name}")
    for word, function in hooks.items():
        setattr(module, word, hookimpl(function))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return EntryPoint(name=name, value=module.__name__, group=ENTRY_POINT_GROUP)


def checks(*names: str, factory: Any = print, **fields: Any) -> Any:
    def kubeletx_register_health_checks(register: Any) -> None:
        for name in names:
            register(name, factory, **fields)

    return kubeletx_register_health_checks


def reason(found: Plugins, name: str) -> str:
    return next(one.reason for one in found.loaded if one.name == name)


def labels(found: Plugins) -> list[str]:
    return [one.label for one in found.registrations]


def test_a_plugin_may_register_several_things(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_plugins([plugin(monkeypatch, "a", kubeletx_register_health_checks=checks("one", "two"))])
    (one,) = found.loaded
    assert one.state == "ready"
    assert labels(found) == ["health-check/one", "health-check/two"]


@pytest.mark.parametrize("name", ["", "Disk", "a b", "../up", "-a", "a-", "a" * 64, "disk\n"])
def test_a_bad_name_fails_its_plugin_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found = load_plugins(
        [
            plugin(monkeypatch, "bad", kubeletx_register_health_checks=checks(name)),
            plugin(monkeypatch, "good", kubeletx_register_health_checks=checks("fine")),
        ]
    )
    assert {one.name: one.state for one in found.loaded} == {"bad": "failed", "good": "ready"}
    assert "is not a name" in reason(found, "bad")
    assert labels(found) == ["health-check/fine"]


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (checks("x", period_seconds=0.5), "less than a second"),
        (checks("x", period_seconds=float("nan")), "less than a second"),
        (checks("x", factory="text"), "cannot be called"),
        (checks("x", "x"), "the name is taken"),
        (checks("x", speed=3), "unexpected keyword argument 'speed'"),
    ],
)
def test_a_bad_registration_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, hook: Any, words: str
) -> None:
    found = load_plugins([plugin(monkeypatch, "bad", kubeletx_register_health_checks=hook)])
    assert words in reason(found, "bad")
    assert labels(found) == []


def test_a_name_that_two_plugins_have_fails_both_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_plugins(
        [
            plugin(monkeypatch, "a", kubeletx_register_health_checks=checks("same")),
            plugin(monkeypatch, "b", kubeletx_register_health_checks=checks("other", "same")),
        ]
    )
    assert {one.name: one.state for one in found.loaded} == {"a": "failed", "b": "failed"}
    assert "the name is taken by health-check/same of plugin a too" in reason(found, "b")
    assert "the name is taken by health-check/same of plugin b too" in reason(found, "a")
    assert labels(found) == []


def test_a_name_that_a_runtime_kind_has_is_refused_in_either_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kubeletx_register_runtimes(register: Any) -> None:
        register("same", print, workload_types=("container",), schemes=("same",))

    first = plugin(monkeypatch, "a", kubeletx_register_health_checks=checks("same"))
    second = plugin(monkeypatch, "b", kubeletx_register_runtimes=kubeletx_register_runtimes)
    found = load_plugins([first, second])
    assert {one.name: one.state for one in found.loaded} == {"a": "failed", "b": "failed"}
    assert "taken by runtime kind 'same' of plugin b too" in reason(found, "a")
    assert "taken by health-check/same of plugin a too" in reason(found, "b")


@pytest.mark.parametrize("name", ["file", "http", "applied", "api", "fornax"])
def test_a_pod_source_cannot_have_the_name_of_one_of_the_agent(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def kubeletx_register_pod_sources(register: Any) -> None:
        register(name, print)

    bad = plugin(monkeypatch, "bad", kubeletx_register_pod_sources=kubeletx_register_pod_sources)
    check = plugin(monkeypatch, "check", kubeletx_register_health_checks=checks(name))
    found = load_plugins([bad, check])
    assert f"the agent itself has a pod source {name!r}" in reason(found, "bad")
    assert labels(found) == [f"health-check/{name}"]


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(3), GeneratorExit()])
def test_a_hook_that_raises_anything_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def raising(register: Any) -> None:
        register("half", print)
        raise error

    found = load_plugins(
        [
            plugin(monkeypatch, "bad", kubeletx_register_health_checks=raising),
            plugin(monkeypatch, "good", kubeletx_register_health_checks=checks("fine")),
        ]
    )
    assert {one.name: one.state for one in found.loaded} == {"bad": "failed", "good": "ready"}
    assert type(error).__name__ in reason(found, "bad")
    assert labels(found) == ["health-check/fine"]


def test_a_hook_that_is_a_coroutine_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    async def kubeletx_register_health_checks(register: Any) -> None:
        raise AssertionError("never runs")

    found = load_plugins(
        [plugin(monkeypatch, "late", kubeletx_register_health_checks=kubeletx_register_health_checks)]
    )
    assert "make it a plain function" in reason(found, "late")


def test_remedies_are_listed_and_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def kubeletx_register_remedies(register: Any) -> None:
        register("x", lambda settings, host: pytest.fail("made by the agent"))

    found = load_plugins(
        [plugin(monkeypatch, "power", kubeletx_register_remedies=kubeletx_register_remedies)]
    )
    assert labels(found) == ["remedy/x"]


class Volumes(BaseVolumeDriver):
    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        return ReadyVolume()

    async def release(self, request: VolumeRequest) -> None:
        pass


def volumes(name: str, *sources: str) -> Callable[[Any], None]:
    def kubeletx_register_volume_drivers(register: Any) -> None:
        register(name, Volumes, sources=sources)

    return kubeletx_register_volume_drivers


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ((), "it is empty"),
        (("emptyDir",), "'emptyDir' is not a field of a volume that a driver can serve"),
        (
            ("flexVolume:",),
            "'flexVolume:' names no driver of flexVolume; write 'flexVolume:' and the driver's name",
        ),
        (("rbd:x",), "'rbd:x' names no driver of rbd; write 'rbd'"),
    ],
)
def test_a_volume_driver_names_what_it_serves(
    monkeypatch: pytest.MonkeyPatch, sources: tuple[str, ...], words: str
) -> None:
    found = load_plugins(
        [plugin(monkeypatch, "disks", kubeletx_register_volume_drivers=volumes("disks", *sources))]
    )
    assert words in reason(found, "disks")


def test_two_volume_drivers_cannot_serve_one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_plugins(
        [
            plugin(monkeypatch, "one", kubeletx_register_volume_drivers=volumes("one", "iscsi", "csi")),
            plugin(monkeypatch, "more", kubeletx_register_volume_drivers=volumes("more", "csi:a.b")),
            plugin(monkeypatch, "two", kubeletx_register_volume_drivers=volumes("two", "csi")),
        ]
    )
    assert {one.name: one.state for one in found.loaded} == {
        "one": "failed",
        "more": "ready",
        "two": "failed",
    }
    assert "the name is taken by volume source csi of plugin one too" in reason(found, "two")


@pytest.mark.parametrize("configured", [(), ("one",)])
def test_what_needs_its_section_is_not_made_without_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, configured: tuple[str, ...]
) -> None:
    made: list[str] = []
    hook = checks("one", factory=lambda *_: made.append("one"), only_configured=True)
    services = PluginServices(
        load_plugins([plugin(monkeypatch, "a", kubeletx_register_health_checks=hook)]).registrations,
        parts=PluginHostParts(
            node_name="n",
            root=tmp_path,
            clock=FakeClock(),
            events=FakeEventSink(),
            records=lambda _: FakeRecords(),
        ),
        own_settings={},
        settings=PluginSettings(),
        markers=CallMarkers(tmp_path),
        node=ObjectRef(kind="Node", name="n"),
        configured=configured,
    )
    assert made == list(configured)
    assert services.states()["one"].word == ("ready" if configured else "unconfigured")
