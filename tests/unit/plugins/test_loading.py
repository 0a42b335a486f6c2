"""Loading plugins: one that is broken is reported and stops no other."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from kubeletx.api import ENTRY_POINT_GROUP, hookimpl
from kubeletx.plugins.loading import Plugins, load_plugins


def plugin(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> EntryPoint:
    """An entry point that names a module with these functions."""
    module = ModuleType(f"plugin_{name}")
    for word, function in functions.items():
        setattr(module, word, function)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return EntryPoint(name=name, value=module.__name__, group=ENTRY_POINT_GROUP)


def registering(*kinds: str, types: tuple[str, ...] = ("container",)) -> Any:
    """A hook that registers these kinds."""

    @hookimpl
    def kubeletx_register_runtimes(register: Any) -> None:
        for kind in kinds:
            register(kind, print, workload_types=types, schemes=(kind,))

    return kubeletx_register_runtimes


def states(found: Plugins) -> dict[str, str]:
    return {one.name: one.state for one in found.loaded}


def reason(found: Plugins, name: str) -> str:
    return next(one.reason for one in found.loaded if one.name == name)


def test_a_good_plugin_is_ready_with_its_kinds_and_types(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = registering("a", "b", types=("container", "wasm"))
    found = load_plugins([plugin(monkeypatch, "good", kubeletx_register_runtimes=hook)])
    (one,) = found.loaded
    assert (one.state, one.kinds, one.workload_types) == ("ready", ("a", "b"), ("container", "wasm"))
    assert found.kinds.workload_types() == ("container", "vm", "wasm")


def test_a_plugin_that_cannot_be_imported_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_plugins(
        [
            EntryPoint(name="broken", value="no_such_module_anywhere", group=ENTRY_POINT_GROUP),
            plugin(monkeypatch, "good", kubeletx_register_runtimes=registering("a")),
        ]
    )
    assert states(found) == {"broken": "failed", "good": "ready"}
    assert "ModuleNotFoundError" in reason(found, "broken")


def test_a_hook_that_raises_leaves_nothing_of_its_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    @hookimpl
    def kubeletx_register_runtimes(register: Any) -> None:
        register("half", print, workload_types=("container",), schemes=("half",))
        raise RuntimeError("went wrong")

    found = load_plugins([plugin(monkeypatch, "half", kubeletx_register_runtimes=kubeletx_register_runtimes)])
    assert reason(found, "half").startswith("RuntimeError: went wrong (at /")
    assert "test_loading.py:" in reason(found, "half")
    assert "half" not in found.kinds


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_hook_that_is_a_coroutine_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    @hookimpl
    async def kubeletx_register_runtimes(register: Any) -> None:
        raise AssertionError("never runs")

    found = load_plugins([plugin(monkeypatch, "late", kubeletx_register_runtimes=kubeletx_register_runtimes)])
    assert states(found) == {"late": "failed"}
    assert "make it a plain function" in reason(found, "late")


def test_both_plugins_that_claim_a_kind_fail_and_name_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_plugins(
        [
            plugin(monkeypatch, "b", kubeletx_register_runtimes=registering("same")),
            plugin(monkeypatch, "a", kubeletx_register_runtimes=registering("same")),
            plugin(monkeypatch, "c", kubeletx_register_runtimes=registering("other")),
        ]
    )
    assert states(found) == {"a": "failed", "b": "failed", "c": "ready"}
    assert "taken by runtime kind 'same' of plugin b too" in reason(found, "a")
    assert "taken by runtime kind 'same' of plugin a too" in reason(found, "b")


def test_a_plugin_with_one_contested_kind_leaves_none_of_its_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_plugins(
        [
            plugin(monkeypatch, "one", kubeletx_register_runtimes=registering("taken")),
            plugin(monkeypatch, "two", kubeletx_register_runtimes=registering("free", "taken")),
        ]
    )
    assert states(found) == {"one": "failed", "two": "failed"}
    assert [kind.name for kind in found.kinds] == ["exec"]


def test_a_plugin_that_registers_nothing_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_plugins(
        [plugin(monkeypatch, "empty"), plugin(monkeypatch, "none", kubeletx_register_runtimes=registering())]
    )
    assert states(found) == {"empty": "skipped", "none": "skipped"}
    assert reason(found, "none") == "registers nothing"
    assert "no function has @hookimpl" in reason(found, "empty")


def test_a_hook_that_kubeletx_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @hookimpl
    def kubeletx_register_rockets(register: Any) -> None:
        raise AssertionError("never runs")

    found = load_plugins([plugin(monkeypatch, "new", kubeletx_register_rockets=kubeletx_register_rockets)])
    assert states(found) == {"new": "failed"}
    assert "kubeletx_register_rockets" in reason(found, "new")


def test_the_installed_plugins_are_found() -> None:
    found = load_plugins()
    ready = {one.name: one for one in found.loaded if one.state == "ready"}
    assert {"containerd", "process"} <= set(ready)
    assert ready["process"].distribution == "kubeletx-local-process"
    assert ready["process"].version
