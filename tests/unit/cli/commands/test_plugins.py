"""``kubeletx plugins``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeletx.server.views import PluginProcessView, PluginReload, PluginView, RegistrationView
from tests.unit.cli.commands.objects import CONFIG_HEAD, Run


def test_a_reload_names_new_plugins_what_failed_and_what_needs_a_restart(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("runtime", "reload").stdout == "No new plugins found.\n"
    late = PluginView(name="late", version="1", state="ready", kinds=("late", "later"))
    empty = PluginView(name="empty", version="1", state="skipped", reason="registers no runtime")
    broken = PluginView(
        name="broken", distribution="bad", version="1", state="failed", reason="ValueError: no"
    )
    agent.backend.plugin_reload = PluginReload(plugins=(late, empty), notes=("plugin old 1 runs on",))
    result = kubeletx("runtime", "reload")
    assert (result.exit_code, result.stdout, result.stderr) == (
        0,
        "plugin/late ready (kinds: late, later)\nplugin/empty skipped (registers no runtime)\n",
        "Warning: plugin old 1 runs on\n",
    )
    agent.backend.plugin_reload = PluginReload(plugins=(broken,))
    result = kubeletx("runtime", "reload")
    assert (result.exit_code, result.stdout, result.stderr) == (
        1,
        "",
        "Error: plugin broken: ValueError: no\n",
    )


def test_plugins_are_listed_with_their_state(agent: Any, kubeletx: Run) -> None:
    agent.backend.plugin_views = (
        PluginView(
            name="containerd",
            distribution="kubeletx-containerd",
            version="0.1.0",
            made_for=">=0.1,<0.2",
            state="ready",
            kinds=("containerd",),
            workload_types=("container",),
            registrations=(
                RegistrationView(
                    name="socket", hook="health-check", state="ready", abandoned_calls={"check": 2}
                ),
            ),
            isolation="process",
            processes=(
                PluginProcessView(runtime="a", pid=12, memory_bytes=48 << 20, cpu_seconds=0.31, restarts=1),
                PluginProcessView(runtime="b", pid=13, memory_bytes=50 << 20, cpu_seconds=2.0, restarts=0),
            ),
        ),
        PluginView(
            name="broken", distribution="bad", version="1", state="failed", reason="no module named x"
        ),
    )
    wide = kubeletx("plugins", "-o", "wide").stdout.split("\n")
    assert wide[0].split()[-2:] == ["ABANDONED", "PROCESSES"]
    assert wide[1].endswith(
        "process     2           a: pid 12, 48Mi, CPU 0.31s, 1 restart; b: pid 13, 50Mi, CPU 2s, 0 restarts"
    )
    assert kubeletx("plugins").stdout.splitlines() == [
        "NAME         DISTRIBUTION          VERSION   KUBELETX     STATE    KINDS        TYPES       "
        "REGISTERS             REASON",
        "containerd   kubeletx-containerd   0.1.0     >=0.1,<0.2   ready    containerd   container   "
        "health-check/socket   <none>",
        "broken       bad                   1         <none>       failed   <none>       <none>      "
        "<none>                no module named x",
    ]


def test_without_an_agent_the_plugins_it_would_find_are_listed(kubeletx: Run) -> None:
    result = kubeletx("plugins")
    assert result.exit_code == 0
    assert "it would find these plugins" in result.stderr
    assert "containerd" in [line.split()[0] for line in result.stdout.splitlines()]


def test_with_agent_flags_the_plugins_of_such_an_agent_are_listed(
    agent: Any, kubeletx: Run, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG_HEAD + "kubeletx: {disabledPlugins: [libvirt]}\n")
    for flag, disabled, command in (
        (f"--config={config}", "libvirt", ["plugins"]),
        ("--disable-plugin=containerd", "containerd", ["plugin", "list"]),
    ):
        result = kubeletx(flag, *command)
        assert result.exit_code == 0, result.output
        shown = [line.split()[0] for line in result.stdout.splitlines() if " disabled " in line]
        assert shown == [disabled]
    refused = kubeletx(f"--config={config}", "plugin", "remove", "x")
    assert refused.exit_code == 2
    assert "--config is for starting the agent" in refused.output
