"""The console, commands, pictures, figures and logs of one machine, through the agent, on real QEMU."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from kubeletx_testing.lab import Lab, PrivateAgent, put_manifest
from kubeletx_testing.lab.machines import PASSWORD, UP, load_machine_image
from tests.integration.support.machines import is_running, machine_agent, type_until, wait_console
from tests.integration.support.survival import until

MakeAgent = Callable[..., PrivateAgent]
POD = "console-lab"


def test_one_machine_has_commands_a_console_pictures_and_logs(
    make_agent: MakeAgent, manifests: Path, lab: Lab, tmp_path: Path
) -> None:
    # One guest for all of it: it takes longer to boot than everything that is asked of it.
    agent = machine_agent(lab, make_agent)
    agent.start()
    put_manifest(manifests, manifest())
    agent.wait_for("console", is_running, timeout_seconds=60)
    wait_console(agent, POD, UP)
    commands_have_input_outputs_and_exit_code(agent)
    exec_probes_decide_readiness(agent)
    consoles_are_attached_one_after_the_other(agent)
    shows_itself(agent, tmp_path / "picture.png")
    the_end_of_the_guest_ends_the_session(agent)


def manifest() -> dict[str, object]:
    """The form of one container, which has probes."""
    machine = {
        "name": "console",
        "image": str(load_machine_image()),
        "resources": {"limits": {"cpu": "1", "memory": "192Mi"}},
        "readinessProbe": {
            "exec": {"command": ["test", "-e", "/run/ready"]},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "console", "annotations": {"kubeletx.io/workload-type": "vm"}},
        "spec": {"terminationGracePeriodSeconds": 2, "restartPolicy": "Never", "containers": [machine]},
    }


def commands_have_input_outputs_and_exit_code(agent: PrivateAgent) -> None:
    done = agent.cli("exec", POD, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "err\n" in done.stderr
    with popen(agent, "exec", "-i", POD, "--", "wc", "-c") as process:
        output, _ = process.communicate("x" * 100_000, timeout=30)
    assert output.strip() == "100000"
    missing = agent.cli("exec", POD, "--", "no-such-program")
    assert (missing.returncode, "no-such-program" in missing.stderr) == (127, True)


def exec_probes_decide_readiness(agent: PrivateAgent) -> None:
    assert not is_ready(agent)
    assert agent.cli("exec", POD, "--", "touch", "/run/ready").returncode == 0
    until(lambda: is_ready(agent), "the exec probe's success")


def consoles_are_attached_one_after_the_other(agent: PrivateAgent) -> None:
    first = popen(agent, "attach", "-i", POD)
    type_until(first, "\n", "login:")
    with popen(agent, "attach", "-i", POD) as second:
        left, _ = first.communicate(timeout=20)
        assert "another attach took over" in left
        type_until(second, "\nroot\n", "Password:")
        type_until(second, f"{PASSWORD}\n", "#")
        type_until(second, "echo six times seven is $((6*7))\n", "seven is 42")
        second.terminate()
    wait_console(agent, POD, "seven is 42")


def shows_itself(agent: PrivateAgent, path: Path) -> None:
    done = agent.cli("vm", "screenshot", POD, "--file", str(path))
    assert done.returncode == 0, done.stderr
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "<domain" in agent.cli("vm", "dump-xml", POD).stdout


def the_end_of_the_guest_ends_the_session(agent: PrivateAgent) -> None:
    with popen(agent, "attach", "-i", POD) as session:
        type_until(session, "\n", "#")
        assert session.stdin is not None
        session.stdin.write("poweroff\n")
        session.stdin.flush()
        session.communicate(timeout=30)
        assert session.returncode == 0
    over = agent.wait_for("console", lambda pod: pod.status.phase == "Succeeded")
    ended = over.status.container_statuses[0].state.terminated
    assert ended is not None
    assert (ended.exit_code, ended.reason) == (0, "Completed")
    assert "seven is 42" in agent.cli("logs", POD).stdout


def is_ready(agent: PrivateAgent) -> bool:
    pod = agent.wait_for("console", is_running)
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


def popen(agent: PrivateAgent, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [agent.argv()[0], f"--root-dir={agent.root_dir}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
