"""A pod's life on real containerd, over ends of the agent; tests/integration/parity has probes, hooks and restarts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import Lab, PrivateAgent, bound_runtime, is_ready, pod_manifest, put_manifest
from tests.integration.support.survival import (
    JSON,
    container,
    events,
    ids,
    life,
    log_lines,
    network_namespaces,
    reasons,
    traces,
    until,
)

MakeAgent = Callable[..., PrivateAgent]


def shell(text: str) -> list[str]:
    return ["sh", "-c", text]


def test_a_pod_waits_for_the_runtime_it_names_and_starts_when_it_is_added(
    make_agent: MakeAgent, manifests: Path, lab: Lab
) -> None:
    agent = make_agent(endpoints=f"container:containerd-a:{lab['containerd-a'].endpoint}")
    agent.start()
    put_manifest(manifests, pod_manifest("patient", runtime="containerd-b"))
    put_manifest(manifests, pod_manifest("plain"))
    assert bound_runtime(agent.wait_for("plain")) == "containerd-a"
    until(lambda: "RuntimeNotFound" in reasons(agent, "patient-lab"), "event RuntimeNotFound")

    def says_so(pod: Pod) -> bool:
        state = container(pod).state.waiting
        return "RuntimeNotFound" in ((state.reason if state else ""), pod.status.reason)

    assert agent.wait_for("patient", says_so).status.phase == "Pending"
    endpoint = f"container:containerd-b:{lab['containerd-b'].endpoint}"
    added = agent.cli("runtime", "add", endpoint)
    assert added.returncode == 0, added.stderr
    assert bound_runtime(agent.wait_for("patient")) == "containerd-b"
    assert reasons(agent, "patient-lab").count("RuntimeNotFound") == 1
    agent.kill()
    agent.start()
    after = agent.wait_for("patient")
    assert bound_runtime(after) == "containerd-b"
    assert container(after).restart_count == 0


def test_nothing_is_left_of_a_pod_whose_manifest_is_removed(
    agent: PrivateAgent, manifests: Path, lab: Lab
) -> None:
    namespaces, addresses = network_namespaces(lab), lab.network.list_addresses()
    volumes = {
        "volumes": [
            {"name": "fast", "emptyDir": {"medium": "Memory"}},
            {
                "name": "facts",
                "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]},
            },
        ]
    }
    mounts = {
        "volumeMounts": [
            {"name": "fast", "mountPath": "/fast", "subPath": "deep/down"},
            {"name": "facts", "mountPath": "/facts"},
        ]
    }
    paths = [
        put_manifest(manifests, pod_manifest(f"brief-{name}", runtime=name, container=mounts, spec=volumes))
        for name in lab.containerds
    ]
    for name in lab.containerds:
        agent.wait_for(f"brief-{name}")
    for path in paths:
        path.unlink()
    for name in lab.containerds:
        agent.wait_gone(f"brief-{name}")
    assert traces(agent) == []
    assert network_namespaces(lab) == namespaces
    assert lab.network.list_addresses() == addresses


def test_a_manifest_put_back_while_its_pod_ends_makes_the_pod_again(
    agent: PrivateAgent, manifests: Path
) -> None:
    slow = pod_manifest(
        "again",
        command=shell("trap 'sleep 3; exit 0' TERM; while :; do sleep 1; done"),
        spec={"terminationGracePeriodSeconds": 20},
    )
    path = put_manifest(manifests, slow)
    before = agent.wait_for("again")
    path.unlink()
    agent.wait_for("again", lambda pod: pod.metadata.deletion_timestamp is not None)
    put_manifest(manifests, slow)
    after = agent.wait_for("again", lambda pod: is_ready(pod) and ids(pod) != ids(before))
    assert after.metadata.deletion_timestamp is None
    path.unlink()
    agent.wait_gone("again")


def test_the_old_pod_of_a_changed_manifest_ends_before_the_new_one_starts(
    make_agent: MakeAgent, manifests: Path
) -> None:
    agent = make_agent(flags=(JSON,))
    agent.start()
    command = shell("trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done")
    put_manifest(manifests, pod_manifest("changing", command=command, metadata={"labels": {"v": "1"}}))
    first = agent.wait_for("changing")
    put_manifest(
        manifests,
        pod_manifest("changing", command=command, container={"env": [{"name": "V", "value": "2"}]}),
    )
    second = agent.wait_for("changing", lambda pod: is_ready(pod) and pod.uid != first.uid)
    assert container(second).restart_count == 0
    story = [
        (line["event"], line.get("pod_uid"))
        for line in log_lines(agent)
        if line["event"] in ("Created sandbox", "Removed pod")
    ]
    assert story == [
        ("Created sandbox", first.uid),
        ("Removed pod", first.uid),
        ("Created sandbox", second.uid),
    ]
    assert traces(agent, pods=[second]) == []


def test_pods_that_ran_to_their_end_stay_ended_over_a_crash_of_the_agent(
    agent: PrivateAgent, manifests: Path, lab: Lab
) -> None:
    message = "printf 'all is well' > /dev/termination-log; exit {}"
    for name, policy, code in (
        ("done", "Never", 0),
        ("broken", "Never", 5),
        ("once", "OnFailure", 0),
    ):
        put_manifest(
            manifests,
            pod_manifest(name, command=shell(message.format(code)), spec={"restartPolicy": policy}),
        )
    put_manifest(
        manifests,
        pod_manifest("late", spec={"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1}),
    )
    wanted = {"done": "Succeeded", "broken": "Failed", "once": "Succeeded", "late": "Failed"}
    before = {
        name: agent.wait_for(name, lambda pod, phase=phase: pod.status.phase == phase)  # type: ignore[misc]
        for name, phase in wanted.items()
    }
    ended = container(before["broken"]).state.terminated
    assert ended is not None
    assert (ended.exit_code, ended.message) == (5, "all is well")
    assert before["late"].status.reason == "DeadlineExceeded"
    for attempt in range(2):
        if attempt:  # the history may be lost as well
            agent.stop()
            for path in agent.root_dir.glob("kubeletx.db*"):
                path.unlink()
        else:
            agent.kill()
        agent.start()
        for name in ("done", "broken", "once") if attempt else wanted:
            after = agent.wait_for(name, lambda pod, phase=wanted[name]: pod.status.phase == phase)  # type: ignore[misc]
            assert container(after).restart_count == 0
            assert ids(after) == ids(before[name])
            assert container(after).state == container(before[name]).state
            state = container(after).state.terminated
            if name in ("done", "broken", "once"):
                assert state is not None
                assert state.message == "all is well"
    for path in list(manifests.iterdir()):
        path.unlink()
    for name in wanted:
        agent.wait_gone(name)
    assert traces(agent) == []


def test_applied_pods_come_and_go_by_command(agent: PrivateAgent, tmp_path: Path) -> None:
    file = tmp_path / "applied.json"
    file.write_text(json.dumps(pod_manifest("applied", runtime="containerd-b")))
    assert agent.cli("apply", "-f", str(file)).returncode == 0
    before = agent.wait_for("applied")
    assert bound_runtime(before) == "containerd-b"
    agent.kill()
    agent.start()
    assert life(agent.wait_for("applied")) == life(before)
    gone = agent.cli("delete", "pod", "applied")
    assert gone.returncode == 0, gone.stderr
    assert agent.pod("applied") is None
    assert traces(agent) == []


def test_a_forced_deletion_does_not_wait_for_the_grace_period(agent: PrivateAgent, tmp_path: Path) -> None:
    deaf = pod_manifest(
        "deaf",
        command=shell("trap '' TERM; while :; do sleep 0.2; done"),
        spec={"terminationGracePeriodSeconds": 600},
    )
    file = tmp_path / "deaf.json"
    file.write_text(json.dumps(deaf))
    assert agent.cli("apply", "-f", str(file)).returncode == 0
    agent.wait_for("deaf")
    assert agent.cli("delete", "pod", "deaf", "--no-wait").returncode == 0
    agent.wait_for("deaf", lambda pod: pod.metadata.deletion_timestamp is not None)
    gone = agent.cli("delete", "pod", "deaf", "--grace-period=0", "--force", timeout_seconds=60)
    assert gone.returncode == 0, gone.stderr
    assert agent.pod("deaf") is None
    assert traces(agent) == []


def test_what_happens_to_a_pod_is_reported_in_events_in_the_kubelets_words(
    agent: PrivateAgent, manifests: Path
) -> None:
    put_manifest(manifests, pod_manifest("told"))
    agent.wait_for("told")
    (manifests / "told.json").unlink()
    agent.wait_gone("told")
    reported = reasons(agent, "told-lab")
    assert [one for one in reported if one in ("Created", "Started", "Killing")] == [
        "Created",
        "Started",
        "Killing",
    ]
    assert {"Pulled"} <= set(reported)
    assert all(one["message"] for one in events(agent))
