"""New plugin distributions are found while the agent runs; what runs is never replaced."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeletx.agent.config.tree import PluginSettings
from kubeletx.api import InvalidPod, names
from kubeletx.kube.types.core import Pod
from kubeletx.plugins.loading import load_plugins
from kubeletx.plugins.reload import Reloaded, RunningPlugins
from kubeletx.runtimes.endpoints.kinds import KindTable
from tests.unit.agent.agent_model import AgentModel, a_pod
from tests.unit.plugins.plugin_sites import Site

SETTINGS = """\
import msgspec

class Settings(msgspec.Struct, frozen=True):
    {field}

from kubeletx.api import hookimpl

@hookimpl
def kubeletx_register_runtimes(register):
    register("set", lambda *_: object(), workload_types=("container",), schemes=("set",), settings=Settings)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(made.path))
    yield made
    made.close()
    made.forget()


class Running:
    """What an agent holds of its plugins, started with those that `site` has."""

    def __init__(self, site: Site, import_seconds: float = 30.0) -> None:
        self.settings: dict[str, Any] = {}
        found = load_plugins(site.entry_points())
        self.kinds: KindTable = found.kinds
        self.plugins = RunningPlugins(
            found,
            on_settings=self.settings.__setitem__,
            find=site.plugins,
            settings=PluginSettings(stall_seconds=import_seconds),
        )
        site.at_end.append(self.plugins.close)

    async def reload(self) -> Reloaded:
        return await self.plugins.reload()

    @property
    def states(self) -> dict[str, str]:
        return {one.name: one.state for one in self.plugins.loaded}


async def test_a_new_distribution_is_loaded_and_the_old_ones_are_left_alone(site: Site) -> None:
    site.install_plugin("old")
    running = Running(site)
    before = sys.modules["site_old.plugin"]
    site.install_plugin("late")
    found = await running.reload()
    assert [(one.name, one.state, one.kinds, one.version) for one in found.plugins] == [
        ("late", "ready", ("late",), "1.0")
    ]
    assert found.notes == ()
    assert [kind.name for kind in running.kinds] == ["exec", "old", "late"]
    assert sys.modules["site_old.plugin"] is before
    assert running.states == {"late": "ready", "old": "ready"}
    assert (await running.reload()).plugins == ()


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("raise RuntimeError('went wrong')\n", "RuntimeError: went wrong"),
        (
            "import no_such_module_anywhere\n",
            "ModuleNotFoundError: No module named 'no_such_module_anywhere'",
        ),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("this is no Python\n", "SyntaxError"),
    ],
)
async def test_a_broken_plugin_is_reported_and_disturbs_nothing(site: Site, head: str, reason: str) -> None:
    site.install_plugin("old")
    running = Running(site)
    site.install_plugin("broken", head=head)
    site.install_plugin("good")
    found = await running.reload()
    assert [(one.name, one.state) for one in found.plugins] == [("broken", "failed"), ("good", "ready")]
    assert found.plugins[0].reason.startswith(reason)
    assert [kind.name for kind in running.kinds] == ["exec", "old", "good"]
    assert running.states == {"broken": "failed", "good": "ready", "old": "ready"}


async def test_a_broken_plugin_is_loaded_once_it_is_repaired_and_nothing_of_its_first_try_is_left(
    site: Site,
) -> None:
    running = Running(site)
    part = "WORD = {!r}\n"
    site.install(
        "split",
        {
            "site_split/plugin.py": "from .part import WORD\nraise RuntimeError(WORD)\n",
            "site_split/part.py": part.format("first"),
            "site_split/__init__.py": "",
        },
    )
    assert (await running.reload()).plugins[0].reason.startswith("RuntimeError: first (at /")
    assert not [one for one in sys.modules if one.startswith("site_split")]
    repaired = (
        "from .part import WORD\nfrom kubeletx.api import hookimpl\n\n@hookimpl\n"
        "def kubeletx_register_runtimes(register):\n"
        "    register(WORD, print, workload_types=('container',), schemes=(WORD,))\n"
    )
    site.install("split", {"site_split/plugin.py": repaired, "site_split/part.py": part.format("secondly")})
    (one,) = (await running.reload()).plugins
    assert (one.state, one.kinds) == ("ready", ("secondly",))
    assert running.states == {"split": "ready"}


async def test_a_plugin_that_hangs_is_reported_and_the_next_ones_are_loaded(site: Site) -> None:
    running = Running(site, import_seconds=3.0)
    site.install_plugin("hangs", head="import time\ntime.sleep(3600)\n")
    site.install_plugin("next")
    found = await running.reload()
    assert [(one.name, one.state) for one in found.plugins] == [("hangs", "failed"), ("next", "ready")]
    assert "the import of plugin hangs (hangs 1.0) did not return within 3 s" in found.plugins[0].reason
    assert "hangs" not in running.kinds
    site.install_plugin("hangs")
    assert [one.state for one in (await running.reload()).plugins] == ["ready"]


async def test_a_kind_that_is_registered_already_is_refused_by_name(site: Site) -> None:
    site.install_plugin("old", kind="same")
    running = Running(site)
    kept = running.kinds.get("same")
    site.install_plugin("second", kind="same")
    (one,) = (await running.reload()).plugins
    assert (one.state, one.kinds) == ("failed", ())
    assert one.reason == (
        "runtime kind 'same' of plugin second (second 1.0) is registered already by plugin old (old 1.0); "
        "uninstall one of them"
    )
    assert running.kinds.get("same") is kept


async def test_code_that_runs_is_not_replaced_and_the_reload_says_what_only_a_restart_does(
    site: Site,
) -> None:
    site.install_plugin("changed")
    site.install_plugin("gone")
    site.install_plugin("wider")
    running = Running(site)
    before = {name: module for name, module in sys.modules.items() if name.startswith("site_")}
    site.install_plugin("changed", kind="other", version="2.0")
    site.uninstall("gone")
    site.install("wider", {}, plugins="wider = site_wider.plugin\nmore = site_wider.more")
    found = await running.reload()
    assert found.plugins == ()
    assert found.notes == (
        "plugin changed 1.0 runs on; restart the agent to use the installed 2.0",
        "plugin gone is no longer installed; it runs on until the agent is restarted",
        "plugin more is new in wider, which is loaded already; restart the agent to use it",
    )
    assert {name: module for name, module in sys.modules.items() if name.startswith("site_")} == before
    assert [kind.name for kind in running.kinds] == ["exec", "changed", "gone", "wider"]


async def test_a_new_kind_has_its_default_settings(site: Site) -> None:
    running = Running(site)
    site.install("set", {"site_set.py": SETTINGS.format(field="number: int = 3")})
    assert [one.state for one in (await running.reload()).plugins] == ["ready"]
    assert running.settings["set"] == {}, "the child has the defaults"


async def test_a_new_kind_whose_settings_are_missing_is_refused_with_the_field(site: Site) -> None:
    running = Running(site)
    site.install("set", {"site_set.py": SETTINGS.format(field="number: int")})
    (one,) = (await running.reload()).plugins
    assert one.state == "failed"
    assert "kubeletx.plugins.set: Object missing required field `number`" in one.reason
    assert "set" not in running.kinds


async def test_a_new_kind_that_claims_what_another_claims_is_reported(site: Site) -> None:
    site.install("one", {"site_one.py": claiming("one")})
    running = Running(site)
    site.install("two", {"site_two.py": claiming("two")})
    found = await running.reload()
    assert [one.state for one in found.plugins] == ["ready"]
    assert found.notes == (
        "kind two claims endpoints that one claims too: name one with ?plugin=KIND in each such endpoint, or the "
        "agent refuses them when it starts again",
    )


def claiming(kind: str) -> str:
    return (
        "from kubeletx.api import hookimpl\n\n@hookimpl\ndef kubeletx_register_runtimes(register):\n"
        f"    register({kind!r}, print, workload_types=('container',), schemes=('unix',), default_claim=True)\n"
    )


CHECK = """\
from kubeletx.api import hookimpl

@hookimpl
def kubeletx_register_health_checks(register):
    register("late-check", print)
"""


async def test_what_is_registered_beside_runtimes_begins_with_the_next_start(site: Site) -> None:
    running = Running(site)
    site.install("late", {"site_late/plugin.py": CHECK})
    (found,) = (await running.reload()).plugins
    assert (found.state, found.registrations) == ("skipped", ())
    assert found.reason == "registers health-check/late-check: restart the agent to use it"
    assert [one.label for one in load_plugins(site.entry_points()).registrations] == [
        "health-check/late-check"
    ]


async def test_two_reloads_at_once_load_a_plugin_once(site: Site) -> None:
    running = Running(site)
    site.install_plugin("late")
    both = await asyncio.gather(running.reload(), running.reload())
    assert sorted(len(one.plugins) for one in both) == [0, 1]


FAKE = "lambda endpoint, settings, host: FakeRuntime(endpoint.name, clock=host.clock)"


async def test_a_running_agent_serves_runtimes_and_pods_of_a_new_plugin(
    agent: AgentModel, site: Site
) -> None:
    drop_ins = agent.config.root_dir / "runtimes.d"
    async with agent.running() as backend:
        await agent.apply(a_pod("before"))
        (drop_ins / "late.yaml").write_text(
            "{name: late, workloadType: wasm, url: 'late://x?isolation=none'}\n"
        )
        found = await backend.runtimes.reload_plugins()
        assert any("late.yaml: url: " in note and "wasm" in note for note in found.notes)
        site.install_plugin(
            "late",
            factory=FAKE,
            types=("wasm",),
            claims=True,
            head="from kubeletx.testing import FakeRuntime\n",
        )
        found = await backend.runtimes.reload_plugins()
        assert [(one.name, one.kinds) for one in found.plugins] == [("late", ("late",))]
        assert not any("late.yaml" in note for note in found.notes)
        assert [one.name for one in await backend.runtimes.list_runtimes()] == ["one", "two", "late"]
        assert "late" in [one.name for one in await backend.about.plugins()]
        await agent.apply(a_wasm_pod("after"))
        await agent.until(lambda: agent.phase("after") == "Running")
        assert agent.phase("before") == "Running"
        assert agent.alive("one") == ["before"]


async def test_a_pod_of_a_type_that_no_plugin_has_is_refused_until_one_has_it(
    agent: AgentModel, site: Site
) -> None:
    async with agent.running() as backend:
        with pytest.raises(InvalidPod, match="wasm"):
            await backend.pods.apply_pod(a_wasm_pod("early"))
        site.install_plugin(
            "late",
            factory=FAKE,
            types=("wasm",),
            claims=True,
            head="from kubeletx.testing import FakeRuntime\n",
        )
        await backend.runtimes.reload_plugins()
        await backend.runtimes.add_runtime("wasm:late:late://x?isolation=none")
        await agent.apply(a_wasm_pod("early"))
        await agent.until(lambda: agent.phase("early") == "Running")


def a_wasm_pod(name: str) -> Pod:
    pod = a_pod(name)
    metadata = msgspec.structs.replace(pod.metadata, annotations={names.WORKLOAD_TYPE: "wasm"})
    return msgspec.structs.replace(pod, metadata=metadata)
