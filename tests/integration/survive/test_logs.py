"""The agent's log: one JSON object a line, whatever happens; the same words as text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from kubeletx.api.names import RUNTIMES_READY
from kubeletx_testing.lab import PrivateAgent, PrivateContainerd, pod_manifest, put_manifest
from tests.integration.support.survival import JSON, log_lines, node_condition, until

MakeAgent = Callable[..., PrivateAgent]
KNOWN = {"debug", "info", "warning", "error"}


def test_every_line_is_one_json_object_with_time_level_and_text(
    make_agent: MakeAgent, manifests: Path, containerd_b: PrivateContainerd
) -> None:
    agent = make_agent(flags=(JSON, "--v=4"))
    agent.start()
    path = put_manifest(manifests, pod_manifest("told", runtime="containerd-b"))
    put_manifest(manifests, pod_manifest("failing", image="crash", command=None))
    put_manifest(manifests, b"kind: Nonsense", name="bad.yaml")
    agent.wait_for("told")
    containerd_b.kill()
    until(lambda: node_condition(agent, RUNTIMES_READY)[0] == "False", "the outage is told")
    containerd_b.start_daemon()
    until(lambda: node_condition(agent, RUNTIMES_READY)[0] == "True", "its end is told")
    path.unlink()
    agent.wait_gone("told")
    agent.stop()
    lines = log_lines(agent)
    assert len(lines) > 10
    for line in lines:
        assert line["level"] in KNOWN
        assert datetime.fromisoformat(line["timestamp"]).tzinfo is not None
        assert line["event"]
        assert not line["event"].endswith(".")
        assert "exception" not in line, line
    about_pod = [line for line in lines if line.get("pod") == "default/told-lab"]
    assert {"Created sandbox", "Started container", "Stopped container", "Removed pod"} <= {
        line["event"] for line in about_pod
    }
    assert all(line.get("pod_uid") for line in about_pod), about_pod
    assert lines[-1]["event"] == "Stopped"


def test_text_has_one_line_for_each_event_without_colours(make_agent: MakeAgent, manifests: Path) -> None:
    agent = make_agent()
    agent.start()
    put_manifest(manifests, pod_manifest("told"))
    agent.wait_for("told")
    agent.stop()
    lines = agent.log_path.read_text().splitlines()
    assert all("\x1b" not in line and "[" in line for line in lines), lines
    assert any("Started container" in line and "pod=default/told-lab" in line for line in lines)
