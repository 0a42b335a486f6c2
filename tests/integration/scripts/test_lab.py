"""The lab itself: real pulls, real containers, the network, faults, and an end that leaves nothing."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubeletx.cri.stubs import runtime_v1_pb2 as cri
from kubeletx_testing.lab import (
    Lab,
    LabError,
    PrivateContainerd,
    PrivateRegistry,
    SmallDisk,
    answers_cri,
    image_ref,
    leftovers,
    make_image,
)
from kubeletx_testing.lab.registry import PASSWORD, USERNAME


async def _call(channel: grpc.aio.Channel, service: str, method: str, **fields: Any) -> Any:
    request = getattr(cri, f"{method}Request")(**fields)
    call = channel.unary_unary(
        f"/runtime.v1.{service}/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=getattr(cri, f"{method}Response").FromString,
    )
    return await call(request, timeout=30)


class Pod:
    """A sandbox with one container, made by bare CRI calls."""

    def __init__(self, channel: grpc.aio.Channel, config: Any) -> None:
        self.channel = channel
        self.config = config
        self.sandbox_id = ""
        self.container_id = ""

    async def runtime(self, method: str, **fields: Any) -> Any:
        return await _call(self.channel, "RuntimeService", method, **fields)

    async def run(self, image: str, handler: str) -> None:
        await _call(self.channel, "ImageService", "PullImage", image=cri.ImageSpec(image=image))
        made = await self.runtime("RunPodSandbox", config=self.config, runtime_handler=handler)
        self.sandbox_id = made.pod_sandbox_id
        container = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name="main"), image=cri.ImageSpec(image=image), log_path="main.log"
        )
        created = await self.runtime(
            "CreateContainer", pod_sandbox_id=self.sandbox_id, config=container, sandbox_config=self.config
        )
        self.container_id = created.container_id
        await self.runtime("StartContainer", container_id=self.container_id)

    async def address(self) -> str:
        answer = await self.runtime("PodSandboxStatus", pod_sandbox_id=self.sandbox_id)
        return str(answer.status.network.ip)

    async def shell(self, script: str) -> Any:
        return await self.runtime(
            "ExecSync", container_id=self.container_id, cmd=["sh", "-c", script], timeout=20
        )

    async def state(self) -> int:
        answer = await self.runtime("ContainerStatus", container_id=self.container_id)
        return int(answer.status.state)


@asynccontextmanager
async def _pod(
    containerd: PrivateContainerd, name: str, *, image: str = "web", handler: str = "runc", host_port: int = 0
) -> AsyncIterator[Pod]:
    mappings = [cri.PortMapping(container_port=8080, host_port=host_port)] if host_port else []
    config = cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(name=name, uid=name, namespace="lab"),
        hostname=name,
        log_directory=str(containerd.base_dir / "pod-logs" / name),
        port_mappings=mappings,
        linux=cri.LinuxPodSandboxConfig(),
    )
    async with grpc.aio.insecure_channel(containerd.endpoint) as channel:
        pod = Pod(channel, config)
        await pod.run(image_ref(image), handler)
        try:
            yield pod
        finally:
            await pod.runtime("StopPodSandbox", pod_sandbox_id=pod.sandbox_id)
            await pod.runtime("RemovePodSandbox", pod_sandbox_id=pod.sandbox_id)


_WAIT_FOR_WEB = "until wget -qO- http://{}:8080/healthz; do usleep 20000; done"


@pytest.mark.parametrize("handler", ["runc", "runc-two"])
async def test_a_container_is_pulled_and_runs_on_each_handler(
    containerd_a: PrivateContainerd, handler: str
) -> None:
    async with _pod(containerd_a, f"web-{handler}", handler=handler) as pod:
        answer = await pod.shell(_WAIT_FOR_WEB.format("localhost"))
        assert answer.stdout.endswith(b"ok\n")


async def test_pods_of_two_containerds_reach_each_other(
    containerd_a: PrivateContainerd, containerd_b: PrivateContainerd
) -> None:
    async with _pod(containerd_a, "left") as left, _pod(containerd_b, "right") as right:
        addresses = [await left.address(), await right.address()]
        assert len(set(addresses)) == 2
        assert (await left.shell(_WAIT_FOR_WEB.format(addresses[1]))).exit_code == 0
        assert (await right.shell(_WAIT_FOR_WEB.format(addresses[0]))).exit_code == 0


async def test_addresses_are_given_back(lab: Lab, containerd_a: PrivateContainerd) -> None:
    before = lab.network.list_addresses()
    async with _pod(containerd_a, "short-lived") as pod:
        assert await pod.address() in lab.network.list_addresses()
    assert lab.network.list_addresses() == before


async def test_a_host_port_leads_to_the_pod_where_iptables_works(
    lab: Lab, containerd_a: PrivateContainerd
) -> None:
    assert lab.network.has_portmap, "iptables cannot do NAT here; host ports would go untested"
    async with _pod(containerd_a, "with-host-port", host_port=18099) as pod:
        await pod.shell(_WAIT_FOR_WEB.format("localhost"))
        answer = await asyncio.to_thread(_get, f"http://{lab.network.gateway}:18099/healthz")
        assert answer == b"ok\n"


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return bytes(answer.read())


async def test_containers_outlive_a_crash_of_their_daemon(containerd_b: PrivateContainerd) -> None:
    async with _pod(containerd_b, "survivor", image="web") as pod:
        containerd_b.kill()
        containerd_b.start_daemon()
        assert await pod.state() == cri.CONTAINER_RUNNING


def test_a_paused_daemon_answers_nothing_and_a_resumed_one_does(containerd_b: PrivateContainerd) -> None:
    containerd_b.pause()
    try:
        assert not answers_cri(containerd_b.endpoint, timeout_seconds=0.3)
    finally:
        containerd_b.resume()
    containerd_b.wait_until_ready()


def test_only_one_bridge_and_no_other_path_of_the_host_is_used(lab: Lab) -> None:
    for containerd in lab.containerds.values():
        for line in containerd.config().splitlines():
            if line.strip().startswith(("root", "state", "temp", "address", "Root", "conf_dir")):
                assert str(lab.base_dir) in line


async def test_a_second_lab_beside_the_first_leaves_nothing_after_a_crash(lab: Lab) -> None:
    base_dir = lab.base_dir.parent / f"{lab.base_dir.name}-second"
    second = Lab(base_dir, containerds=("only",))
    second.start()
    try:
        assert second.network.subnet is not None
        assert lab.network.subnet is not None
        assert not second.network.subnet.overlaps(lab.network.subnet)
        async with grpc.aio.insecure_channel(second["only"].endpoint) as channel:
            config = cri.PodSandboxConfig(
                metadata=cri.PodSandboxMetadata(name="left", uid="left", namespace="lab"),
                port_mappings=[cri.PortMapping(container_port=8080, host_port=18098)],
                linux=cri.LinuxPodSandboxConfig(cgroup_parent=""),
            )
            await Pod(channel, config).run(image_ref("web"), "runc")
        assert any("process" in line for line in leftovers(base_dir))
        second["only"].kill()
    finally:
        second.stop()
    assert second.leftovers() == []
    assert not Path(base_dir).exists()


def test_bare_calls_see_what_others_made(lab: Lab) -> None:
    with lab["containerd-a"].cri() as cri_calls:
        before = cri_calls.pods()
        made = cri_calls.call(
            "RunPodSandbox",
            config=cri.PodSandboxConfig(
                metadata=cri.PodSandboxMetadata(name="bare", uid="bare", namespace="lab"),
                linux=cri.LinuxPodSandboxConfig(),
            ),
        )
        assert cri_calls.pods() == sorted([*before, "bare"])
        cri_calls.call("StopPodSandbox", pod_sandbox_id=made.pod_sandbox_id)
        cri_calls.call("RemovePodSandbox", pod_sandbox_id=made.pod_sandbox_id)
        assert cri_calls.pods() == before


def test_a_full_disk_refuses_writes_until_it_is_freed(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", size_bytes=1 << 20) as disk:
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.directory / "file").write_bytes(b"x" * 8192)
        disk.free()
        (disk.directory / "file").write_bytes(b"x" * 8192)
    assert not any((tmp_path / "disk").iterdir())


def test_a_protected_registry_gives_images_only_to_those_who_know_the_password(
    containerd_a: PrivateContainerd, tmp_path: Path
) -> None:
    with PrivateRegistry(tmp_path, protected=True) as registry:
        registry.push([make_image("secret", tag="1", size_bytes=1)])
        containerd_a.add_registry(registry.address, registry.address)
        image = cri.ImageSpec(image=f"{registry.address}/secret:1")
        with containerd_a.cri() as cri_calls:
            with pytest.raises(LabError, match="PullImage"):
                cri_calls.call("PullImage", image=image)
            auth = cri.AuthConfig(username=USERNAME, password=PASSWORD)
            assert cri_calls.call("PullImage", image=image, auth=auth).image_ref
            cri_calls.call("RemoveImage", image=image)


def test_a_lab_that_someone_uses_is_not_taken_over(lab: Lab) -> None:
    with pytest.raises(LabError, match="in use by process"):
        Lab(lab.base_dir).start()
    assert answers_cri(lab["containerd-a"].endpoint)
