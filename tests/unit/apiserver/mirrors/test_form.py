"""What mirrors look like, and when they are made and deleted."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from kubeletx.api import PodUid, names
from kubeletx.apiserver.mirrors.form import Create, Delete, Step, mirror_of, plan_mirrors
from kubeletx.kube.manifests.machine_form import as_containers, machine_of, nics_of, vpc_of
from kubeletx.kube.types.container import Container, VolumeDevice
from kubeletx.kube.types.core import (
    Nic,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    ResourceRequirements,
    VirtualMachine,
)
from kubeletx.pods.model.facts import Deletion, DesiredPod

KEY = ("default", "web-n")
GOING = Deletion(requested_at=0.0, grace_seconds=30)


def static(
    spec: PodSpec | None = None,
    *,
    hash_: str = "h1",
    spec_hash: str = "s1",
    notes: dict[str, str] | None = None,
) -> DesiredPod:
    spec = spec or PodSpec(containers=(Container(name="c", image="i"),), node_name="n")
    meta = ObjectMeta(
        name="web-n",
        namespace="default",
        uid=hash_,
        labels={"app": "web"},
        annotations={names.CONFIG_HASH: hash_, **(notes or {})},
        creation_timestamp=datetime(2030, 1, 1, tzinfo=UTC),
        finalizers=("example.com/hold",),
    )
    return DesiredPod(
        uid=PodUid(hash_), pod=Pod(metadata=meta, spec=spec), source="file", spec_hash=spec_hash
    )


def mirror(of: DesiredPod | None = None, *, is_deleted: bool = False) -> Pod:
    made = mirror_of(of or static(), node_name="n", node_uid="node-uid")
    deleted = datetime(2030, 1, 2, tzinfo=UTC) if is_deleted else None
    return replace(made, metadata=replace(made.metadata, uid="m1", deletion_timestamp=deleted))


def plan(statics: list[DesiredPod], mirrors: list[Pod], **options: object) -> list[Step]:
    return list(
        plan_mirrors(
            {(one.pod.namespace, one.pod.name): one for one in statics},
            {(one.namespace, one.name): one for one in mirrors},
            **options,  # type: ignore[arg-type]
        )
    )


def kinds(steps: list[Step]) -> list[str]:
    return [step.why if isinstance(step, Delete) else "create" for step in steps]


def test_a_mirror_carries_the_hash_and_belongs_to_the_node() -> None:
    meta = mirror_of(static(), node_name="n", node_uid="node-uid").metadata
    assert meta.annotations[names.CONFIG_MIRROR] == "h1"
    assert meta.owner_references == (
        OwnerReference(api_version="v1", kind="Node", name="n", uid="node-uid", controller=True),
    )
    assert (meta.uid, meta.creation_timestamp, meta.finalizers) == ("", None, ())
    assert meta.labels == {"app": "web"}


def test_an_applied_pod_is_found_by_its_uid_where_it_has_no_hash() -> None:
    applied = static(hash_="uid-1")
    bare = replace(applied.pod, metadata=replace(applied.pod.metadata, annotations={}))
    made = mirror_of(replace(applied, pod=bare), node_name="n", node_uid="u")
    assert made.metadata.annotations[names.CONFIG_MIRROR] == "uid-1"


def test_what_an_api_server_refuses_is_left_out() -> None:
    container = Container(name="c", image="i", volume_devices=(VolumeDevice(name="d", device_path="/dev/d"),))
    made = mirror_of(static(PodSpec(containers=(container,), priority=7)), node_name="n", node_uid="u")
    assert made.spec.priority is None
    assert made.spec.containers[0].volume_devices == ()


def machine_pod() -> DesiredPod:
    machine = VirtualMachine(
        name="Box",
        image="disk.img",
        resources=ResourceRequirements(limits={"memory": "64Mi"}),
        public_key="ssh-rsa A",
        user_data="c2VjcmV0",
        cloud_init_user_data_script="echo hunter2",
        trusted_image_certificate=("a", "b"),
        power_spec="Paused",
    )
    spec = PodSpec(virtual_machine=machine, vpc="net", nics=(Nic(name="eth0"),), runtime_service_name="kvm")
    return static(spec, notes={names.VM_META_DATA: '{"password": "hunter2"}'})


def test_a_machine_is_one_container_that_says_what_it_is() -> None:
    made = mirror_of(machine_pod(), node_name="n", node_uid="u")
    (container,) = made.spec.containers
    notes = made.metadata.annotations
    assert (container.name, container.image, container.resources.limits) == (
        "box",
        "disk.img",
        {"memory": "64Mi"},
    )
    assert notes[names.WORKLOAD_TYPE] == "vm"
    assert notes[names.RUNTIME_SERVICE_NAME] == "kvm"
    assert notes[names.VM_POWER] == "Paused"
    unknown = {"virtualMachine", "vpc", "nics", "runtimeServiceName"}
    assert not unknown & msgspec.to_builtins(made.spec).keys()


def test_first_boot_data_never_leaves_the_node() -> None:
    text = msgspec.json.encode(mirror_of(machine_pod(), node_name="n", node_uid="u")).decode()
    assert "hunter2" not in text
    assert "c2VjcmV0" not in text


def test_a_machine_as_a_container_is_the_same_machine() -> None:
    pod = machine_pod().pod
    made = as_containers(pod)
    machine = pod.spec.virtual_machine
    assert machine is not None
    assert machine_of(made) == replace(machine, name="box")
    assert (nics_of(made), vpc_of(made)) == (nics_of(pod), vpc_of(pod))
    assert as_containers(made) == made


def test_each_static_pod_gets_one_mirror() -> None:
    assert plan([static()], []) == [Create(static())]
    assert plan([static()], [mirror()]) == []


def test_a_mirror_that_differs_is_deleted_first() -> None:
    assert kinds(plan([static(hash_="h2")], [mirror()])) == ["its static pod has changed"]
    assert kinds(plan([static(spec_hash="s2")], [mirror()])) == ["its static pod has changed"]


def test_a_mirror_that_someone_deletes_goes_at_once_and_comes_back() -> None:
    assert kinds(plan([static()], [mirror(is_deleted=True)])) == ["it is being deleted"]


def test_a_mirror_without_a_pod_waits_for_every_source() -> None:
    assert plan([], [mirror()], all_seen=False) == []
    assert plan([], [mirror(is_deleted=True)], all_seen=False) == []
    assert kinds(plan([], [mirror()])) == ["its static pod is gone"]


def test_a_pod_that_ends_keeps_its_mirror_and_gets_no_other() -> None:
    going = replace(static(), deletion=GOING)
    assert plan([going], [mirror()]) == []
    assert plan([going], []) == []


def test_a_pod_that_no_source_claimed_yet_is_left_as_it_is_shown() -> None:
    assert plan([static(hash_="h2")], [mirror()], unsure=[KEY]) == []
    assert plan([static()], [], unsure=[KEY]) == []
