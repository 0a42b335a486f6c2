"""The other subcommands against a fake agent."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import Result

from kubeletx.api import Png, Table, Text, names
from kubeletx.cli.main import cli
from kubeletx.kube.types.core import (
    Container,
    ObjectMeta,
    ObjectReference,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
)
from kubeletx.kube.types.event import Event
from kubeletx.server.views import (
    ActionView,
    ConfigValue,
    ImageServiceView,
    ImageView,
    MeasuredUsage,
    PluginProcessView,
    PluginReload,
    PluginView,
    PodUsage,
    RegistrationView,
    RuntimeDetail,
    RuntimeUsageView,
    RuntimeView,
    UsageView,
)

Run = Callable[..., Result]
T0 = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)

CONFIG_HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: web, image: IMAGE}]}
"""


def pod(name: str = "web", containers: tuple[str, ...] = ("web",)) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            annotations={names.BOUND_RUNTIME: "one"},
            labels={"a": "1"},
        ),
        spec=PodSpec(
            containers=tuple(Container(name=c, image="busybox") for c in containers), node_name="node-1"
        ),
        status=PodStatus(phase="Running", start_time=T0),
    )


def runtime(name: str = "one", pods: int = 0) -> RuntimeView:
    return RuntimeView(
        name=name,
        workload_type="container",
        kind="containerd",
        url="unix:///a",
        status="Ready",
        since=T0,
        pods=pods,
    )


# --- apply, replace, delete ---


def test_apply_creates_changes_and_leaves_alone(agent: Any, kubeletx: Run, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(MANIFEST)
    assert kubeletx("apply", "-f", str(file)).stdout == "pod/web created\n"
    assert kubeletx("apply", "-f", str(file)).stdout == "pod/web unchanged\n"
    assert (
        kubeletx("apply", "-f", "-", input=MANIFEST.replace("IMAGE", "new")).stdout == "pod/web configured\n"
    )


def test_apply_of_a_directory_takes_every_manifest_in_order(
    agent: Any, kubeletx: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "pods"
    folder.mkdir()
    for name in ("b", "a"):
        (folder / f"{name}.yaml").write_text(MANIFEST.replace("name: web}", f"name: {name}}}", 1))
    (folder / "notes.txt").write_text("nothing")
    assert kubeletx("apply", "-f", str(folder)).stdout == "pod/a created\npod/b created\n"


def test_apply_says_what_is_wrong_in_which_file(agent: Any, kubeletx: Run, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("kind: Pod\nspec: {containers: 3}\n")
    result = kubeletx("apply", "-f", str(file))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {file}: ")
    missing = kubeletx("apply", "-f", str(tmp_path / "none.yaml"))
    assert "cannot be read: No such file" in missing.stderr


def test_what_may_not_change_points_to_replace(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    changed = MANIFEST.replace("spec: {", "spec: {restartPolicy: Never, ")
    result = kubeletx("apply", "-f", "-", input=changed)
    assert result.exit_code == 1
    assert "replace --force" in result.stderr
    assert kubeletx("replace", "--force", "-f", "-", input=changed).stdout == "pod/web replaced\n"
    assert agent.backend.calls[-1] == ("replace", "web", True)


def test_delete_waits_until_the_pod_is_gone(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    result = kubeletx("delete", "pod", "web")
    assert (result.exit_code, result.stdout) == (0, 'pod "web" deleted\n')
    assert agent.backend.calls[-1] == ("delete", "default/web", None, False)


def test_delete_waits_for_a_slow_pod_and_gives_up_after_its_timeout(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    agent.backend.delete_takes_effect = False
    result = kubeletx("delete", "pod", "web", "--timeout", "50ms")
    assert result.exit_code == 1
    assert "still ending" in result.stderr
    assert kubeletx("delete", "pod", "web", "--no-wait").exit_code == 0


def test_a_delete_that_takes_long_says_once_what_it_waits_for(
    agent: Any, kubeletx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletx.cli.commands.delete.SAY_SECONDS", 0.05)
    agent.backend.put(pod())
    agent.backend.delete_takes_effect = False
    failed = ActionView(at=T0, action="remove sandbox", result="stop failed: no network", seconds=1)
    agent.backend.histories["default/web"] = (failed,)
    result = kubeletx("delete", "pod", "web", "--timeout", "400ms")
    assert result.stderr.count("Waiting for pod default/web: remove sandbox: stop failed: no network\n") == 1


@pytest.mark.parametrize(
    ("flags", "grace", "force"),
    [
        (["--now"], 1, False),
        (["--grace-period", "5"], 5, False),
        (["--force"], 0, True),
        (["--grace-period=0"], 0, False),
    ],
)
def test_grace_of_a_deletion(agent: Any, kubeletx: Run, flags: list[str], grace: int, force: bool) -> None:
    agent.backend.put(pod())
    assert kubeletx("delete", "pod/web", *flags).exit_code == 0
    assert agent.backend.calls[-1] == ("delete", "default/web", grace, force)


@pytest.mark.parametrize(
    "args",
    [[], ["pod"], ["runtime", "one"], ["pod", "web", "--all"], ["pod", "web", "--now", "--grace-period=3"],
     ["pod", "web", "--force", "--grace-period=3"]],
)  # fmt: skip
def test_deletions_that_make_no_sense_are_usage_errors(agent: Any, kubeletx: Run, args: list[str]) -> None:
    assert kubeletx("delete", *args).exit_code == 2


def test_delete_by_label_by_file_and_of_what_is_not_there(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod("a"))
    agent.backend.put(pod("web"))
    assert kubeletx("delete", "pods", "-l", "a=1").stdout == 'pod "a" deleted\npod "web" deleted\n'
    assert kubeletx("delete", "-f", "-", "--ignore-not-found", input=MANIFEST).exit_code == 0
    assert kubeletx("delete", "pod", "web").exit_code == 1


# --- logs ---


def test_logs_are_printed_as_they_are(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod(containers=("web", "side")))
    agent.backend.logs = {"web": [b"one\n", b"\xff\n"], "side": [b"two\n"]}
    result = kubeletx("logs", "web", "--tail", "5", "--since", "1m", "--timestamps", "-p")
    assert result.stdout_bytes == b"one\n\xff\n"
    assert result.stderr == 'Defaulted container "web" out of: web, side\n'
    options = agent.backend.calls[-1][2]
    assert (options.tail_lines, options.since_seconds, options.timestamps, options.previous) == (
        5,
        60,
        True,
        True,
    )
    assert kubeletx("logs", "pod/web", "-c", "side").stdout == "two\n"


def test_logs_of_an_unknown_pod_suggest_another(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    result = kubeletx("logs", "wbe")
    assert (result.exit_code, result.stderr) == (1, "Error: pod default/wbe not found; did you mean 'web'?\n")
    assert kubeletx("logs", "web", "--since", "yesterday").exit_code == 2


# --- describe, top ---


def test_a_pod_is_described_with_its_runtime_and_events(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    agent.backend.events = [
        Event(
            involved_object=ObjectReference(kind="Pod", namespace="default", name="web", uid="uid-web"),
            type="Normal",
            reason="Started",
            message="Started container web",
            last_timestamp=T0,
        ),
        Event(involved_object=ObjectReference(kind="Pod", namespace="default", name="other"), reason="Other"),
    ]
    text = kubeletx("describe", "pod", "web").stdout
    assert re.search(r"^Name: +web$", text, re.MULTILINE)
    assert re.search(r"^Runtime: +one$", text, re.MULTILINE)
    assert "Started container web" in text
    assert "Other" not in text


def test_a_pod_that_stands_by_is_described_with_the_time_and_its_memory(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    assert "Standby:" not in kubeletx("describe", "pod", "web").stdout
    resting = PodCondition(
        type="kubeletx.io/Standby",
        status="True",
        reason="Hibernated",
        message="memory: 64.0 MiB before, 1.5 MiB after",
        last_transition_time=T0,
    )
    made = pod()
    agent.backend.put(
        msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=(resting,)))
    )
    text = kubeletx("describe", "pod", "web").stdout
    found = r"^Standby: +Hibernated since .*20\d\d.* \(memory: 64.0 MiB before, 1.5 MiB after\)$"
    assert re.search(found, text, re.MULTILINE)


def test_the_history_of_a_pod_is_shown_when_asked_for(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    agent.backend.histories["default/web"] = (
        ActionView(
            at=T0,
            action="start unit web",
            result="unit failed: StartError: no such file",
            seconds=0.25,
            count=3,
        ),
    )
    text = kubeletx("describe", "pod", "web", "--history").stdout
    assert re.search(r"x3 +0.25s +start unit web +unit failed: StartError: no such file", text)
    assert "History" not in kubeletx("describe", "pod", "web").stdout


def test_a_runtime_is_described_with_what_it_can_do(agent: Any, kubeletx: Run) -> None:
    agent.backend.runtimes = {"one": runtime()}
    agent.backend.details["one"] = RuntimeDetail(
        runtime=runtime(),
        capabilities={"Exec": True, "Checkpoint": False},
        traits={"remote": False},
        handlers=("runc",),
    )
    for args in (("runtime", "describe", "one"), ("describe", "runtime/one")):
        text = kubeletx(*args).stdout
        assert "  Exec:        yes\n  Checkpoint:  no\n" in text
        assert re.search(r"^Handlers: +runc$", text, re.MULTILINE)
    assert json.loads(kubeletx("runtime", "describe", "one", "-o", "json").stdout)["handlers"] == ["runc"]


@pytest.mark.parametrize(("is_default", "shown"), [(True, "yes, of type container"), (False, "no")])
def test_a_runtime_says_whether_its_image_service_is_the_default(
    agent: Any, kubeletx: Run, is_default: bool, shown: str
) -> None:
    service = ImageServiceView(
        name="one", workload_type="container", url="unix:///a", store="s1", is_default=is_default
    )
    one = msgspec.structs.replace(runtime(), image_service=service)
    agent.backend.runtimes = {"one": one}
    agent.backend.details["one"] = RuntimeDetail(runtime=one, store_id="s1")
    assert re.search(
        rf"^Default Images: +{shown}$", kubeletx("runtime", "describe", "one").stdout, re.MULTILINE
    )
    expected = {
        "name": "one", "workloadType": "container", "url": "unix:///a", "store": "s1", "isDefault": is_default,
    }  # fmt: skip
    described = json.loads(kubeletx("runtime", "describe", "one", "-o", "json").stdout)
    assert described["runtime"]["imageService"] == expected
    (listed,) = json.loads(kubeletx("get", "runtimes", "-o", "json").stdout)["items"]
    assert listed["imageService"] == expected


def test_the_node_is_described_with_runtimes_and_pods(agent: Any, kubeletx: Run) -> None:
    agent.backend.runtimes = {"one": runtime()}
    agent.backend.put(pod())
    text = kubeletx("describe", "node").stdout
    assert "Pods (1 in total)" in text
    assert kubeletx("describe", "node", "else").exit_code == 1


def test_usage_is_shown_and_partial_sums_are_said(agent: Any, kubeletx: Run) -> None:
    agent.backend.usage_view = UsageView(
        node_name="node-1",
        node=MeasuredUsage(cpu_millicores=500, memory_bytes=512 << 20),
        node_cpu_capacity_millicores=2000,
        node_memory_capacity_bytes=4096 << 20,
        runtimes=(
            RuntimeUsageView(
                name="one", workload_type="container", pods=1, usage=MeasuredUsage(cpu_millicores=5)
            ),
        ),
        pods=(
            PodUsage(
                namespace="default",
                name="a",
                runtime="one",
                usage=MeasuredUsage(cpu_millicores=1, memory_bytes=1 << 20),
            ),
            PodUsage(
                namespace="default",
                name="b",
                runtime="one",
                usage=MeasuredUsage(cpu_millicores=9, memory_bytes=2 << 20),
            ),
        ),
        missing=("two",),
    )
    result = kubeletx("top", "pods", "--sort-by", "cpu")
    assert result.stdout.splitlines() == [
        "NAME   CPU(cores)   MEMORY(bytes)   RUNTIME",
        "b      9m           2Mi             one",
        "a      1m           1Mi             one",
    ]
    assert result.stderr == "Warning: no answer from two; sums are partial\n"
    assert kubeletx("top", "node").stdout.splitlines()[1].split() == ["node-1", "500m", "25%", "512Mi", "12%"]
    assert kubeletx("top", "runtimes").stdout.splitlines()[1].split()[:4] == ["one", "container", "1", "5m"]
    assert kubeletx("top", "pods", "none").exit_code == 1
    assert kubeletx("top", "images").exit_code == 2


# --- runtimes, images, plugins, config, version ---


def test_runtimes_are_added_cordoned_and_removed(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("runtime", "add", "vm:lab:qemu:///system").stdout == "runtime/lab added (NotReady)\n"
    assert kubeletx("runtime", "add", "vm:lab:qemu:///system").exit_code == 1
    assert kubeletx("runtime", "cordon", "lab").stdout == "runtime/lab cordoned\n"
    assert "SchedulingDisabled" in kubeletx("runtime", "list").stdout
    assert kubeletx("runtime", "uncordon", "lab").stdout == "runtime/lab uncordoned\n"
    assert (
        kubeletx("runtime", "remove", "lab", "--drain").stdout
        == "runtime lab cordoned\nruntime lab removed\n"
    )
    assert agent.backend.calls[-1] == ("remove", "lab", True, False, 300.0)


def test_a_runtime_with_pods_is_not_removed(agent: Any, kubeletx: Run) -> None:
    agent.backend.runtimes = {"one": runtime(pods=2)}
    result = kubeletx("runtime", "remove", "one")
    assert (result.exit_code, result.stderr) == (1, "Error: runtime one has 2 pods; use --drain\n")


def test_images_are_pulled_removed_and_pruned(agent: Any, kubeletx: Run) -> None:
    agent.backend.runtimes = {"one": runtime()}
    agent.backend.images = (
        ImageView(
            store="s1",
            runtimes=("one",),
            id="sha256:1",
            ref="r",
            tags=("a:1",),
            size_bytes=1000,
            pulled_by_us=True,
        ),
    )
    assert kubeletx("image", "pull", "busybox").stdout == "busybox pulled into one: sha256:busybox\n"
    assert kubeletx("image", "pull", "missing").stderr == "Error: image missing not found\n"
    assert kubeletx("image", "rm", "a:1").stdout == "Deleted: a:1 (s1)\n"
    assert kubeletx("image", "prune").stdout == "Deleted: a:1 (s1)\nFreed 1kB\n"
    assert kubeletx("image", "list", "-o", "name").stdout == "image/a:1\n"


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


def test_the_configuration_of_the_agent_is_shown_with_its_origins(agent: Any, kubeletx: Run) -> None:
    agent.backend.config_values = (
        ConfigValue(key="maxPods", value=5, origin="flag --max-pods", flag="max-pods"),
        ConfigValue(key="logging.format", value="json", origin="/etc/x.yaml"),
        ConfigValue(key="syncFrequency", value="1m", origin="default"),
    )
    assert kubeletx("config", "view").stdout.splitlines() == [
        "SETTING          VALUE   FROM",
        "maxPods          5       flag --max-pods",
        "logging.format   json    /etc/x.yaml",
        "syncFrequency    1m      default",
    ]
    document = yaml.safe_load(kubeletx("config", "view", "--changed", "-o", "yaml").stdout)
    assert document["logging"] == {"format": "json"}
    assert "syncFrequency" not in document


def test_with_agent_flags_no_agent_is_asked_for_the_configuration(kubeletx: Run, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG_HEAD + "maxPods: 7\n")
    result = kubeletx("--config", str(file), "config", "view", "--changed")
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["--root-dir", str(tmp_path), "flag", "--root-dir"],
        ["maxPods", "7", str(file)],
    ]
    file.write_text(CONFIG_HEAD + "maxPods: x\nsyncFrequency: y\n")
    bad = kubeletx("--config", str(file), "config", "view")
    assert bad.exit_code == 2
    assert len(bad.stderr.splitlines()) == 2
    wrong = kubeletx(
        "--container-runtime-endpoint", "container:a:unix:///a;pod:b:unix:///b", "config", "view"
    )
    assert wrong.exit_code == 2
    assert "item 2: unknown workload type 'pod'" in wrong.stderr
    file.write_text(CONFIG_HEAD + 'kubeletx: {containerRuntimeEndpoints: ["container:a:/a", "pod:b:/b"]}\n')
    of_file = kubeletx("--config", str(file), "config", "view")
    assert of_file.stderr.startswith(
        f"Error: {file}: kubeletx.containerRuntimeEndpoints[1]: unknown workload type 'pod'"
    )
    file.write_text(CONFIG_HEAD + "containerRuntimeEndpoint: ftp:///a\n")
    assert (
        f"Error: {file}: containerRuntimeEndpoint: "
        in kubeletx("--config", str(file), "config", "view").stderr
    )


def test_what_config_view_prints_can_be_read_again(kubeletx: Run, tmp_path: Path) -> None:
    document = kubeletx(
        "--max-pods", "3", "--cni-conf-dir", "/etc/cni", "config", "view", "-o", "yaml"
    ).stdout
    file = tmp_path / "again.yaml"
    file.write_text(document)
    again = kubeletx("--config", str(file), "config", "view", "-o", "yaml")
    assert again.stdout == document


def test_versions(agent: Any, kubeletx: Run) -> None:
    assert "Agent:          node-1, pid 4711, up 10m" in kubeletx("version").stdout
    assert kubeletx("version", "--client").stdout == "Client version: 0.1.0\n"


def test_completion_scripts_are_printed(kubeletx: Run) -> None:
    assert "_KUBELETX_COMPLETE" in kubeletx("completion", "bash").stdout


def test_the_shell_completes_commands_flags_and_names_of_pods(
    agent: Any, kubeletx: Run, tmp_path: Path
) -> None:
    agent.backend.put(pod("web-1"))
    agent.backend.put(pod("db-1"))
    complete = ShellComplete(cli, {}, "kubeletx", "_KUBELETX_COMPLETE")

    def words(args: list[str], incomplete: str) -> list[str]:
        return [str(item.value) for item in complete.get_completions(args, incomplete)]

    assert words([], "de") == ["describe", "delete"]
    assert words(["get"], "--all") == ["--all-namespaces"]
    assert words(["--root-dir", str(tmp_path), "logs"], "w") == ["web-1"]
    assert words(["--root-dir", str(tmp_path / "none"), "logs"], "w") == []
    root = ["--root-dir", str(tmp_path)]
    agent.backend.runtimes = {"one": runtime()}
    assert words(["get"], "") == ["pods", "runtimes", "node", "images", "volumes", "events"]
    assert words([*root, "get", "pods"], "") == ["db-1", "web-1"]
    assert words([*root, "get"], "pod/w") == ["pod/web-1"]
    assert words([*root, "-n", "other", "get", "pods"], "") == []
    assert words([*root, "describe", "rt"], "") == ["one"]
    assert words([*root, "delete", "pod", "db-1"], "w") == ["web-1"]
    assert words(["delete"], "") == ["pods"]
    assert words([*root, "logs", "web-1", "-c"], "") == ["web"]
    assert words([*root, "runtime", "cordon"], "o") == ["one"]
    assert words([*root, "image", "pull", "--runtime"], "") == ["one"]
    assert words(["get", "pods", "-o"], "j") == ["json"]


# --- no agent ---


def test_an_agent_that_is_not_running_is_one_line_with_socket_and_cure(kubeletx: Run, tmp_path: Path) -> None:
    for args in (("get", "pods"), ("exec", "web", "ls"), ("image", "pull", "x"), ("delete", "pod", "x")):
        result = kubeletx(*args)
        assert result.exit_code == 1
        assert result.stderr.startswith(
            f"Error: no agent is running on {tmp_path}/kubeletx.sock; start one with"
        )
        assert len(result.stderr.splitlines()) == 1


def test_a_socket_of_somebody_else_is_one_line(
    agent: Any, kubeletx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: socket.socket, address: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    result = kubeletx("get", "pods")
    assert "permission denied on" in result.stderr
    assert "sudo" in result.stderr


# --- forms of kubectl ---


@pytest.mark.parametrize(
    "args",
    [
        ("pod", "web", "db"),
        ("pods/web", "po/db"),
        ("pod", "web", "db", "--wait=false"),
        ("po", "--all=true", "-A"),
    ],
)
def test_pods_are_deleted_in_any_form_of_kubectl(agent: Any, kubeletx: Run, args: tuple[str, ...]) -> None:
    agent.backend.put(pod("web"))
    agent.backend.put(pod("db"))
    result = kubeletx("delete", *args, "-oname")
    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(result.stdout.split()) == ["pod/db", "pod/web"]


def test_pods_are_described_in_any_form_of_kubectl(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod("web"))
    agent.backend.put(pod("db"))
    for args in (("pod/web", "pods/db"), ("po", "web", "db"), ("pods",), ("pods", "-A=true")):
        result = kubeletx("describe", *args)
        assert result.exit_code == 0
        assert result.stdout.count("Name:  ") == 2, args


def test_logs_in_any_form_of_kubectl(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod("web"))
    agent.backend.logs = {"web": [b"one\n"]}
    for args in (
        ("pod/web", "--follow=false", "--tail=5"),
        ("web", "-c=web", "--since=5m"),
        ("-f", "po/web", "-cweb"),
    ):
        result = kubeletx("logs", *args, "--timestamps=true")
        assert (result.exit_code, result.stderr) == (0, ""), args


def test_names_that_are_not_utf8_are_usage_errors(agent: Any, kubeletx: Run) -> None:
    for words in (("describe", "pod"), ("logs",), ("delete", "pod"), ("runtime", "cordon")):
        result = kubeletx(*words, "a\udcff")
        assert result.exit_code == 2, words
        assert result.stderr == "Error: arguments: 'a\\\\udcff' is not UTF-8; give names as UTF-8\n"


def test_a_file_whose_name_is_not_utf8_can_be_applied(agent: Any, kubeletx: Run, tmp_path: Path) -> None:
    path = tmp_path / "a\udcff.yaml"
    path.write_text("kind: Pod")
    result = kubeletx("apply", "-f", str(path))
    assert result.exit_code != 0
    assert "a\\udcff.yaml: apiVersion: is missing" in result.stderr


MISSPELT = MANIFEST.replace("spec: {", "spec: {restartPolice: Never, ")


def test_apply_warns_of_unknown_fields_as_kubectl_does(agent: Any, kubeletx: Run) -> None:
    for words in ((), ("--validate=warn",)):
        result = kubeletx("apply", "-f", "-", *words, input=MISSPELT)
        assert result.stderr == 'Warning: unknown field "spec.restartPolice"\n'
        assert result.exit_code == 0
    for word in ("ignore", "false"):
        assert kubeletx("apply", "-f", "-", f"--validate={word}", input=MISSPELT).stderr == ""


@pytest.mark.parametrize("words", [["--validate=strict"], ["--validate=true"], ["--validate"]])
def test_strict_validation_refuses_unknown_fields(agent: Any, kubeletx: Run, words: list[str]) -> None:
    result = kubeletx("apply", *words, "-f", "-", input=MISSPELT)
    assert result.exit_code == 1
    assert 'strict decoding error: unknown field "spec.restartPolice"' in result.stderr
    assert agent.backend.pods == {}


@pytest.mark.parametrize(
    ("word", "suffix"),
    [
        ("--dry-run=client", " (dry run)"),
        ("--dry-run", " (dry run)"),
        ("--dry-run=server", " (server dry run)"),
    ],
)
def test_a_dry_run_changes_nothing(agent: Any, kubeletx: Run, word: str, suffix: str) -> None:
    assert kubeletx("apply", word, "-f", "-", input=MANIFEST).stdout == f"pod/web created{suffix}\n"
    assert agent.backend.pods == {}
    agent.backend.put(pod())
    before = dict(agent.backend.pods)
    changed = MANIFEST.replace("IMAGE", "other")
    assert kubeletx("replace", word, "-f", "-", input=changed).stdout == f"pod/web replaced{suffix}\n"
    assert agent.backend.pods == before
    assert kubeletx("apply", "--dry-run=none", "-f", "-", input=changed).stdout == "pod/web configured\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("apply", "--dry-run=x"), 'Invalid dry-run value (x). Must be "none", "server", or "client".'),
        (
            ("apply", "--validate=x"),
            '--validate "x" is not one of strict (or true), warn, ignore (or false)',
        ),
        (("replace", "--force", "--dry-run=client"), "--dry-run can not be used when --force is set"),
    ],
)
def test_wrong_words_of_validation_and_dry_runs_are_usage_errors(
    agent: Any, kubeletx: Run, args: tuple[str, ...], words: str
) -> None:
    result = kubeletx(*args, "-f", "-", input=MANIFEST)
    assert result.exit_code == 2
    assert words in result.stderr


def test_panels_are_listed_and_shown_as_table_and_text(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("panel").stderr == "No panels found.\n"
    agent.backend.panels = {
        "load": Table(columns=("WHAT", "VALUE"), rows=(("threads", "3"), ("\x1b[31mred", ""))),
        "notes": Text(text="one\ntwo\x07\n"),
    }
    assert kubeletx("panel").stdout.splitlines() == [
        "NAME    TITLE   PLUGIN   STATE   REASON",
        "load    Load    fake     ready   <none>",
        "notes   Notes   fake     ready   <none>",
    ]
    assert kubeletx("panel", "load").stdout.splitlines() == [
        "WHAT       VALUE",
        "threads    3",
        "�[31mred   <none>",
    ]
    assert kubeletx("panel", "notes").stdout == "one\ntwo�\n"
    assert json.loads(kubeletx("panel", "notes", "-o", "json").stdout)["type"] == "text"
    missing = kubeletx("panel", "a/b")
    assert (missing.exit_code, missing.stderr) == (1, "Error: no plugin registers panel 'a/b'\n")


def test_a_picture_is_written_to_a_file_once(agent: Any, kubeletx: Run, tmp_path: Path) -> None:
    picture, file = b"\x89PNG\r\n\x1a\n123", tmp_path / "dot.png"
    agent.backend.panels = {"dot": Png(data=picture)}
    assert kubeletx("panel", "dot", "-f", str(file)).stdout == f"panel/dot written to {file}\n"
    assert file.read_bytes() == picture
    assert "exists; give --force" in kubeletx("panel", "dot", "-f", str(file)).stderr
    assert kubeletx("panel", "dot", "-f", str(file), "--force").exit_code == 0
