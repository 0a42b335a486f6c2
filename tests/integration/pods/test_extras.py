"""Extras of a provider, as a container on real containerd finds them."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import msgspec
from kubeletx_containerd.plugin import make_runtime

from kubeletx.api import (
    ImageSpec,
    ImageStatus,
    Mount,
    RuntimeName,
    SupportsExec,
    SupportsImages,
    SystemClock,
    names,
)
from kubeletx.kube.types.core import Container, Pod, VirtualMachine
from kubeletx.node.cgroups.trees import CgroupTrees
from kubeletx.pods import NodeContext
from kubeletx.pods.specs.extras import UnitExtras, gather_extras
from kubeletx.pods.specs.inputs import UnitInputs
from kubeletx.pods.specs.unit import compose_unit
from kubeletx.testing import FakeHost, endpoint, sandbox_spec
from kubeletx.volumes import PreparedVolumes, VolumePreparer
from kubeletx_testing.lab import PrivateContainerd, image_ref

AGENT = f"extras-{os.getpid()}"
LABELS = {names.AGENT_ID: AGENT, names.RUNTIME_NAME: "under-test", names.POD_UID: "uid-extras"}
SCRIPT = "cat /run/session/id; echo $SESSION; echo $OWN; touch /run/session/new || echo read-only"


async def test_mount_variable_and_annotation_of_a_provider_arrive_in_the_container(
    containerd_a: PrivateContainerd, tmp_path: Path
) -> None:
    session = tmp_path / "session"
    session.mkdir()
    (session / "id").write_text("id-of-the-session\n")

    async def provide(_pod: Pod, _container: Container | VirtualMachine) -> UnitExtras:
        return UnitExtras(
            mounts=(Mount(source=str(session), target="/run/session", read_only=True),),
            variables={"SESSION": "s1", "OWN": "of the provider"},
            annotations={"session.example/id": "s1"},
        )

    host = FakeHost(tmp_path, clock=SystemClock(), agent_id=AGENT)
    runtime = make_runtime(endpoint(containerd_a.endpoint, name="under-test", kind="containerd"), None, host)
    await runtime.open()
    images, execs = runtime.capability(SupportsImages), runtime.capability(SupportsExec)
    assert images is not None
    assert execs is not None
    try:
        image = ImageSpec(requested=image_ref("busybox"))
        image_id = await images.pull_image(image, None, None)
        pod = a_pod(image.requested)
        container = pod.spec.containers[0]
        node = NodeContext(
            agent_id=AGENT, node_name="n", root_dir=tmp_path / "root", cgroup_version=CgroupTrees().version
        )
        inputs = UnitInputs(
            pod=pod,
            container=container,
            node=node,
            attempt=0,
            image=ImageStatus(id=image_id, ref=image_id),
            runtime_name=RuntimeName("under-test"),
            extras=await gather_extras({"sessions": provide}, pod, container),
        )
        volumes = VolumePreparer(root_dir=node.root_dir, blocking=asyncio.to_thread, fields=node.fields())
        spec = await compose_unit(inputs, volumes, PreparedVolumes(uid=pod.uid))
        (tmp_path / spec.log_path).parent.mkdir()
        sandbox = sandbox_spec("extras", log_directory=str(tmp_path), labels=LABELS)
        sandbox_id = await runtime.create_sandbox(sandbox)
        try:
            unit_id = await runtime.create_unit(sandbox_id, spec, sandbox)
            await runtime.start_unit(unit_id)
            answer = await execs.exec_sync(unit_id, ["sh", "-c", SCRIPT], 20)
            assert answer.stdout.decode().splitlines() == [
                "id-of-the-session",
                "s1",
                "of the pod",
                "read-only",
            ]
            status = await runtime.unit_status(unit_id)
            assert status.summary.annotations["session.example/id"] == "s1"
            with containerd_a.cri() as cri:
                shown = cri.call("ContainerStatus", container_id=unit_id, verbose=True)
            config = json.loads(shown.info["info"])["config"]
            assert config["annotations"]["session.example/id"] == "s1"
        finally:
            await runtime.stop_sandbox(sandbox_id)
            await runtime.remove_sandbox(sandbox_id)
    finally:
        await runtime.close()


def a_pod(image: str) -> Pod:
    container = {
        "name": "main",
        "image": image,
        "command": ["sleep", "1000"],
        "env": [{"name": "OWN", "value": "of the pod"}],
    }
    meta = {"name": "extras", "namespace": "default", "uid": "uid-extras"}
    return msgspec.convert({"metadata": meta, "spec": {"containers": [container]}}, Pod)
