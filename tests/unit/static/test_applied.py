from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import Conflict, InvalidPod, NotFound, PodUid, Unavailable
from kubeletx.kube.manifests.load import load_pods
from kubeletx.kube.types.core import Pod
from kubeletx.pods.model.sources import Accepted, WaitsFor
from kubeletx.static import applied
from kubeletx.static.applied import AppliedSource, ApplyOutcome
from kubeletx.testing.clock import FakeClock
from tests.unit.static.recording_sink import RecordingSink

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBpOyMzs1yFhcdJpGqCFOQdNcGw6Xz7sRP8nTGe1u2hB"


def pod(image: str = "app:1", name: str = "web", extra: str = "", labels: str = "{}") -> Pod:
    text = f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {labels}}}
spec:
  containers: [{{name: c, image: "{image}"}}]
  {extra}
"""
    return load_pods(text.encode(), "web.yaml")[0]


class Node:
    """A directory of applied pods, and agents that come and go on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def start(self) -> tuple[AppliedSource, RecordingSink]:
        sink = RecordingSink()
        source = AppliedSource(directory=self.directory, sink=sink, node_name="n1", clock=FakeClock())
        await source.start()
        return source, sink


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "applied")


async def test_an_applied_pod_keeps_its_name_and_gets_a_uid(node: Node) -> None:
    source, sink = await node.start()
    action, made = await source.apply(pod())
    assert action is ApplyOutcome.CREATED
    assert made.ref == "default/web"
    assert made.spec.restart_policy == "Always"
    assert made.spec.node_name == "n1"
    assert made.metadata.creation_timestamp is not None
    assert made.metadata.annotations["kubernetes.io/config.source"] == "applied"
    assert sink.pods == {made.uid: made}
    assert source.find("default", "web") == made


async def test_applied_pods_survive_a_restart_with_their_identity(node: Node) -> None:
    source, _ = await node.start()
    _, made = await source.apply(pod())
    source, sink = await node.start()
    assert sink.calls == ["update web", "synced"]
    (again,) = sink.pods.values()
    assert (again.uid, again.metadata.creation_timestamp, again.spec) == (
        made.uid,
        made.metadata.creation_timestamp,
        made.spec,
    )
    assert (await source.apply(pod()))[0] is ApplyOutcome.UNCHANGED


async def test_a_stored_pod_that_a_later_version_would_refuse_goes_on_and_is_reported(node: Node) -> None:
    source, _ = await node.start()
    _, made = await source.apply(pod())
    (path,) = node.directory.iterdir()
    text = path.read_text()
    path.write_text(text.replace("  name: web\n", "  finalizers: [old]\n  name: web\n", 1))
    assert path.read_text() != text
    _, sink = await node.start()
    assert list(sink.pods) == [made.uid]
    assert sink.calls == ["update web", "invalid default_web.yaml", "synced"]


async def test_the_file_belongs_to_the_agent_alone_and_is_a_manifest(node: Node) -> None:
    source, _ = await node.start()
    _, made = await source.apply(pod())
    (path,) = node.directory.iterdir()
    assert path.name == "default_web.yaml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (written,) = load_pods(path.read_bytes(), "x")
    assert written.uid == made.uid
    assert written.spec == pod().spec


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (pod(), pod("app:2")),
        (pod(), pod("app:latest")),
        (pod(), pod(labels="{a: b}")),
        (pod(), pod(extra="activeDeadlineSeconds: 100")),
        (pod(extra="activeDeadlineSeconds: 100"), pod(extra="activeDeadlineSeconds: 50")),
        (pod(), pod(extra="tolerations: [{operator: Exists}]")),
        (
            pod(extra="initContainers: [{name: i, image: 'a:1'}]"),
            pod(extra="initContainers: [{name: i, image: 'a:2'}]"),
        ),
    ],
)
async def test_what_kubectl_may_change_is_changed_in_place(node: Node, before: Pod, after: Pod) -> None:
    source, sink = await node.start()
    _, first = await source.apply(before)
    action, second = await source.apply(after)
    assert action is ApplyOutcome.CONFIGURED
    assert second.uid == first.uid
    assert sink.calls == ["synced", "update web", "update web"]


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        (pod(), pod(extra="hostNetwork: true"), "spec.hostNetwork"),
        (pod(), pod(extra="terminationGracePeriodSeconds: 1"), "spec.terminationGracePeriodSeconds"),
        (
            pod(extra="activeDeadlineSeconds: 9"),
            pod(extra="activeDeadlineSeconds: 10"),
            "activeDeadlineSeconds",
        ),
        (pod(extra="activeDeadlineSeconds: 9"), pod(), "spec.activeDeadlineSeconds"),
        (pod(extra="tolerations: [{operator: Exists}]"), pod(), "spec.tolerations"),
        (pod(), pod(extra="initContainers: [{name: i, image: i}]"), "spec.initContainers"),
    ],
)
async def test_any_other_change_is_refused_and_names_the_way_out(
    node: Node, before: Pod, after: Pod, field: str
) -> None:
    source, sink = await node.start()
    _, first = await source.apply(before)
    with pytest.raises(Conflict, match=f"{field}.* may not change .* use replace --force"):
        await source.apply(after)
    assert sink.pods == {first.uid: first}
    (source, sink) = await node.start()
    assert list(sink.pods) == [first.uid]


async def test_a_machines_power_image_and_size_may_change_but_not_its_key(node: Node) -> None:
    def machine(power: str, image: str, cpu: str) -> Pod:
        text = (
            "{apiVersion: v1, kind: Pod, metadata: {name: vm}, spec: {virtualMachine: {name: testVM, "
            f"image: {image}, powerSpec: {power}, resources: {{limits: {{cpu: '{cpu}'}}}}}}}}}}"
        )
        return load_pods(text.encode(), "vm.yaml")[0]

    source, _ = await node.start()
    await source.apply(machine("Running", "a.img", "1"))
    assert (await source.apply(machine("Paused", "b.img", "1")))[0] is ApplyOutcome.CONFIGURED
    assert (await source.apply(machine("Paused", "b.img", "2")))[0] is ApplyOutcome.CONFIGURED
    other = machine("Paused", "b.img", "2")
    assert other.spec.virtual_machine is not None
    booting = replace(other.spec.virtual_machine, public_key=KEY)
    with pytest.raises(Conflict, match=r"spec\.virtualMachine\.publicKey"):
        await source.apply(replace(other, spec=replace(other.spec, virtual_machine=booting)))


async def test_interfaces_come_and_go_but_the_first_stays_and_none_changes(node: Node) -> None:
    def machine(*nics: str) -> Pod:
        listed = ", ".join(nics)
        text = (
            "{apiVersion: v1, kind: Pod, metadata: {name: vm}, spec: {virtualMachine: {name: vm, image: a.img}, "
            f"nics: [{listed}]}}}}"
        )
        return load_pods(text.encode(), "vm.yaml")[0]

    source, _ = await node.start()
    first, data = "{name: eth0}", "{name: data, portId: p1}"
    await source.apply(machine(first))
    await source.apply(machine(first, data))
    with pytest.raises(
        Conflict, match=r"spec\.nics\[eth0\] may not change .* other than eth0 may come and go"
    ):
        await source.apply(machine(data))
    with pytest.raises(Conflict, match=r"spec\.nics\[data\] may not change"):
        await source.apply(machine(first, "{name: data, portId: p2}"))
    assert (await source.apply(machine(first)))[0] is ApplyOutcome.CONFIGURED


async def test_replace_with_force_is_another_pod(node: Node) -> None:
    source, sink = await node.start()
    with pytest.raises(NotFound):
        await source.replace(pod())
    _, first = await source.apply(pod())
    assert (await source.replace(pod("app:2")))[1].uid == first.uid
    action, second = await source.replace(pod(extra="hostNetwork: true"), force=True)
    assert action is ApplyOutcome.REPLACED
    assert second.uid != first.uid
    assert sink.calls[-2:] == ["remove web", "update web"]
    assert list((await node.start())[1].pods) == [second.uid]


async def test_delete_removes_the_file_first_and_hands_on_the_grace_period(node: Node) -> None:
    source, sink = await node.start()
    _, made = await source.apply(pod())
    assert (await source.delete("default", "web", grace_seconds=0, force=True)).uid == made.uid
    assert sink.graces == {made.uid: (0, True)}
    assert list(node.directory.iterdir()) == []
    with pytest.raises(NotFound):
        await source.delete("default", "web")
    assert (await source.apply(pod()))[1].uid != made.uid


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (pod("a b"), "spec.containers[0].image"),
        (pod(name="../../etc/x"), "metadata.name"),
        (pod(extra="nodeName: other"), "spec.nodeName"),
        (pod(extra="serviceAccountName: builder"), "spec.serviceAccountName"),
    ],
)
async def test_a_bad_pod_is_refused_and_nothing_is_written(node: Node, bad: Pod, field: str) -> None:
    source, sink = await node.start()
    with pytest.raises(InvalidPod) as caught:
        await source.apply(bad)
    assert caught.value.field == field
    assert sink.calls == ["synced"]
    assert list(node.directory.iterdir()) == []


async def test_annotations_that_the_agent_writes_are_not_taken_from_a_manifest(node: Node) -> None:
    source, _ = await node.start()
    _, made = await source.apply(pod())
    copied = pod()
    copied = load_pods(
        b"{apiVersion: v1, kind: Pod, metadata: {name: web, uid: theirs, annotations: "
        b"{kubeletx.io/bound-runtime: x, kubernetes.io/config.hash: z}}, "
        b"spec: {containers: [{name: c, image: 'app:1'}]}, status: {phase: Running}}",
        "exported.yaml",
    )[0]
    action, same = await source.apply(copied)
    assert (action, same.uid) == (ApplyOutcome.UNCHANGED, made.uid)


async def test_a_broken_file_is_reported_and_mended_by_applying_again(node: Node) -> None:
    node.directory.mkdir()
    (node.directory / "default_web.yaml").write_text("kind: [")
    source, sink = await node.start()
    assert sink.calls == ["invalid default_web.yaml"], "the pod of that file may be one that runs"
    await source.apply(pod())
    assert sink.calls == ["invalid default_web.yaml", "valid default_web.yaml", "synced", "update web"]
    assert sink.errors == {}


async def test_a_broken_file_can_be_deleted_by_its_pods_name(node: Node) -> None:
    node.directory.mkdir()
    (node.directory / "default_web.yaml").write_text("kind: [")
    source, sink = await node.start()
    assert not await source.forget("default", "other")
    assert await source.forget("default", "web")
    assert sink.calls[1:] == ["valid default_web.yaml", "synced"]
    assert list(node.directory.iterdir()) == []
    assert not await source.forget("default", "web")


async def test_a_file_that_the_disk_does_not_give_is_tried_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = await node.start()
    _, made = await source.apply(pod())
    really = os.open

    def refuse(path: str, *args: Any, **kwargs: Any) -> int:
        if str(path).startswith(str(node.directory)):
            raise OSError(5, "Input/output error", path)
        return really(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)  # a disk that fails
    sink, clock = RecordingSink(), FakeClock()
    again = AppliedSource(directory=node.directory, sink=sink, node_name="n1", clock=clock)
    task = asyncio.create_task(again.start())
    await sink.wait(lambda: bool(sink.errors))
    await clock.run_for(3 * applied.RETRY_SECONDS)
    assert "synced" not in sink.calls
    monkeypatch.undo()
    await clock.run_for(applied.RETRY_SECONDS)
    await task
    assert list(sink.pods) == [made.uid]
    assert sink.is_synced
    assert sink.errors == {}


async def test_newer_rules_do_not_end_a_pod_that_was_accepted(node: Node) -> None:
    source, _ = await node.start()
    _, made = await source.apply(pod())
    (path,) = node.directory.iterdir()
    path.write_text(path.read_text().replace("app:1", "'no longer good'"))
    _, sink = await node.start()
    assert list(sink.pods) == [made.uid]
    assert sink.errors[str(path)][1] == made.uid


async def test_an_interrupted_write_is_swept_away(node: Node) -> None:
    node.directory.mkdir()
    (node.directory / ".default_web.yaml.new").write_text("half")
    _, sink = await node.start()
    assert sink.calls == ["synced"]
    assert list(node.directory.iterdir()) == []


async def test_a_full_disk_refuses_the_change_and_keeps_what_was(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    source, sink = await node.start()
    _, made = await source.apply(pod())
    monkeypatch.setattr(os, "fsync", full)  # a small file system needs root to be mounted
    with pytest.raises(Unavailable, match="No space left on device"):
        await source.apply(pod("app:2"))
    monkeypatch.undo()
    assert sink.pods == {made.uid: made}
    assert next(iter((await node.start())[1].pods.values())).spec == made.spec


async def test_a_caller_that_goes_away_leaves_file_and_sink_agreed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, sink = await node.start()
    task = asyncio.create_task(source.apply(pod()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await source.close()
    assert sink.calls == ["synced", "update web"]
    assert os.listdir(node.directory) == ["default_web.yaml"]


async def test_verbs_that_overlap_are_carried_out_one_by_one(node: Node) -> None:
    source, sink = await node.start()
    await asyncio.gather(*(source.apply(pod(f"app:{number}")) for number in range(10)))
    assert sink.calls.count("update web") == 10
    assert len(sink.pods) == 1


async def test_nothing_is_applied_before_the_old_pods_are_known(node: Node) -> None:
    source, _ = await node.start()
    _, made = await source.apply(pod())
    late = AppliedSource(directory=node.directory, sink=RecordingSink(), node_name="n1", clock=FakeClock())
    with pytest.raises(Unavailable, match="are not read yet"):
        await late.apply(pod("app:2"))
    await late.start()
    assert (await late.apply(pod("app:2")))[1].uid == made.uid


async def test_the_runtime_of_a_bound_pod_may_not_change(node: Node) -> None:
    def on(runtime: str) -> Pod:
        made = pod()
        notes = {"kubeletx.io/runtime-service-name": runtime, "kubernetes.io/note": runtime}
        return replace(made, metadata=replace(made.metadata, annotations=notes))

    sink, bound = RecordingSink(), set[str]()
    source = AppliedSource(
        directory=node.directory,
        sink=sink,
        node_name="n1",
        clock=FakeClock(),
        is_bound=lambda uid: uid in bound,
    )
    await source.start()
    _, made = await source.apply(on("one"))
    assert (await source.apply(on("two")))[0] is ApplyOutcome.CONFIGURED
    bound.add(made.uid)
    with pytest.raises(
        Conflict, match=r"annotations\[kubeletx.io/runtime-service-name\] may not change .* --force"
    ):
        await source.apply(on("three"))


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(node: Node) -> None:
    source, sink = await node.start()
    assert (await source.apply(pod(), dry_run=True))[0] is ApplyOutcome.CREATED
    assert list(node.directory.iterdir()) == []
    _, made = await source.apply(pod())
    calls = list(sink.calls)
    action, would = await source.apply(pod("app:2"), dry_run=True)
    assert (action, would.uid, would.spec.containers[0].image) == (ApplyOutcome.CONFIGURED, made.uid, "app:2")
    assert (await source.replace(pod("app:2"), dry_run=True))[0] is ApplyOutcome.REPLACED
    assert (await source.replace(pod(), dry_run=True, force=True))[0] is ApplyOutcome.REPLACED
    with pytest.raises(Conflict):
        await source.apply(pod(extra="restartPolicy: Never"), dry_run=True)
    assert sink.calls == calls
    assert source.find("default", "web") == made


async def test_a_pod_that_waits_for_another_one_is_answered_with_its_name(node: Node) -> None:
    source, sink = await node.start()
    sink.answer = WaitsFor("default/web", PodUid("older"), "file")
    _, made = await source.apply(pod())
    assert source.answers(made.ref) == (
        "pod default/web waits for the end of pod default/web (older) of source 'file'",
    )
    sink.answer = Accepted()
    _, made = await source.apply(pod("app:2"))
    assert source.answers(made.ref) == ()
