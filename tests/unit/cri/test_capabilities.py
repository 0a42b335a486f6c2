"""`CriRuntime` on a scripted server: images, streams, limits and forwarded calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import msgspec
import pytest

from kubeletx.api import (
    Conflict,
    Endpoint,
    Resources,
    RuntimeName,
    StreamRequest,
    StreamUrl,
    SupportsAttach,
    SupportsCriPassthrough,
    SupportsExec,
    SupportsImages,
    SupportsLogReopen,
    SupportsPortForward,
    SupportsResize,
    SupportsStats,
    TimedOut,
    UnitId,
    names,
)
from kubeletx.cri import CriRuntime, CriStatusError
from kubeletx.cri.stubs import runtime_v1_pb2 as pb
from kubeletx.testing import FakeHost, sandbox_spec, unit_spec
from kubeletx_testing.cri_server import FakeCriServer

Code = grpc.StatusCode
MakeRuntime = Callable[..., CriRuntime]

SPEC = sandbox_spec("web", labels={names.AGENT_ID: "agent-1", names.POD_UID: "uid-web"})
UNIT = unit_spec("main", labels={names.AGENT_ID: "agent-1"})


async def test_images_are_found_pulled_listed_and_removed(server: FakeCriServer, runtime: CriRuntime) -> None:
    images = runtime.capability(SupportsImages)
    assert images is not None
    spec = UNIT.image
    assert await images.find_image(spec) is None
    ref = await images.pull_image(spec, None, SPEC)
    found = await images.find_image(spec)
    assert found is not None
    assert (found.ref, found.tags) == (ref, ("busybox",))
    assert [image.id for image in await images.list_images()] == [found.id]
    info = await images.store_info()
    assert [f.mountpoint for f in info.filesystems] == ["/var/lib/images"]
    await images.remove_image(msgspec.structs.replace(spec, ref=ref))
    assert server.last("RemoveImage").image.image == ref
    await images.remove_image(spec)
    assert await images.list_images() == []


async def test_a_pull_has_no_deadline_of_its_own_and_ends_when_cancelled(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    images = runtime.capability(SupportsImages)
    assert images is not None
    server.hold("PullImage")
    pull = asyncio.create_task(images.pull_image(UNIT.image, None, None), name="pull")
    await server.wait_call("PullImage")
    pull.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pull
    assert server.model.images == {}


async def test_the_store_of_a_containerd_is_known_by_instance_others_by_address(
    server: FakeCriServer, make_runtime: MakeRuntime
) -> None:
    async def store_id(runtime: CriRuntime) -> str:
        await runtime.open()
        images = runtime.capability(SupportsImages)
        assert images is not None
        found = (await images.store_info()).id
        await runtime.close()
        return found

    by_address = await store_id(make_runtime())
    assert by_address == await store_id(make_runtime("?handler=crun"))
    server.uuid = "1234"
    assert await store_id(make_runtime()) == await store_id(make_runtime("?handler=crun")) == "1234/k8s.io"


async def test_an_own_image_endpoint_gets_all_image_calls(
    server: FakeCriServer, socket_directory: object, make_runtime: MakeRuntime
) -> None:
    base = make_runtime()
    assert isinstance(base.host, FakeHost)
    async with FakeCriServer(server.path.parent, uuid="images") as image_server:
        endpoint = Endpoint(
            name=RuntimeName("split"),
            workload_type="container",
            url=server.url,
            image_url=image_server.url,
        )
        runtime = CriRuntime(endpoint, None, base.host)
        await runtime.open()
        images = runtime.capability(SupportsImages)
        raw = runtime.capability(SupportsCriPassthrough)
        assert images is not None
        assert raw is not None
        await images.pull_image(UNIT.image, None, None)
        await raw.cri_unary("ListImages", b"", 5)
        await raw.cri_unary("Version", b"", 5)
        assert (await images.store_info()).id == "images/k8s.io"
        assert (image_server.count("PullImage"), server.count("PullImage")) == (1, 0)
        assert (image_server.count("ListImages"), server.count("ListImages")) == (1, 0)
        assert image_server.count("Version") == 0
        await runtime.close()
    await base.close()


async def test_commands_run_and_their_streams_are_urls(server: FakeCriServer, runtime: CriRuntime) -> None:
    sandbox_id = await runtime.create_sandbox(SPEC)
    unit_id = await runtime.create_unit(sandbox_id, UNIT, SPEC)
    await runtime.start_unit(unit_id)
    execs, attaches, forwards = (
        runtime.capability(SupportsExec),
        runtime.capability(SupportsAttach),
        runtime.capability(SupportsPortForward),
    )
    assert execs is not None
    assert attaches is not None
    assert forwards is not None
    result = await execs.exec_sync(unit_id, ["echo", "hi"], 1.2)
    assert (result.stdout, result.exit_code) == (b"echo hi", 0)
    assert server.last("ExecSync").timeout == 2
    tty = StreamRequest(command=("sh",), stdin=True, tty=True)
    assert await execs.exec(unit_id, tty) == StreamUrl(f"http://127.0.0.1:1/exec/{unit_id}")
    assert not server.last("Exec").stderr, "a terminal has one output"
    assert await attaches.attach(unit_id, StreamRequest()) == StreamUrl(
        f"http://127.0.0.1:1/attach/{unit_id}"
    )
    assert await forwards.port_forward(sandbox_id, 80) == StreamUrl(
        f"http://127.0.0.1:1/portforward/{sandbox_id}"
    )


async def test_a_command_that_takes_too_long_is_timed_out(server: FakeCriServer, runtime: CriRuntime) -> None:
    execs = runtime.capability(SupportsExec)
    assert execs is not None
    server.refuse("ExecSync", Code.DEADLINE_EXCEEDED, "timeout 1s exceeded: context deadline exceeded")
    with pytest.raises(TimedOut):
        await execs.exec_sync(UnitId("c"), ["sleep", "9"], 1)


async def test_limits_change_logs_reopen_and_figures_come_from_running_units(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    sandbox_id = await runtime.create_sandbox(SPEC)
    unit_id = await runtime.create_unit(sandbox_id, UNIT, SPEC)
    resize, logs, stats = (
        runtime.capability(SupportsResize),
        runtime.capability(SupportsLogReopen),
        runtime.capability(SupportsStats),
    )
    assert resize is not None
    assert logs is not None
    assert stats is not None
    with pytest.raises(Conflict):
        await logs.reopen_log(unit_id)
    assert await stats.list_unit_stats({}) == []
    await runtime.start_unit(unit_id)
    await logs.reopen_log(unit_id)
    await resize.update_resources(unit_id, Resources(memory_limit_bytes=1 << 20))
    assert (await runtime.unit_status(unit_id)).resources == {"memory_limit_bytes": 1 << 20}
    (entry,) = await stats.list_unit_stats({names.AGENT_ID: "agent-1"})
    assert (entry.id, entry.uid, entry.name) == (unit_id, SPEC.uid, "main")


async def test_raw_calls_are_forwarded_with_the_server_s_own_status(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    raw = runtime.capability(SupportsCriPassthrough)
    assert raw is not None
    request = pb.RunPodSandboxRequest()
    request.config.metadata.name = "raw"
    answer = await raw.cri_unary("RunPodSandbox", request.SerializeToString(), 5)
    assert pb.RunPodSandboxResponse.FromString(answer).pod_sandbox_id in server.model.sandboxes
    with pytest.raises(CriStatusError) as caught:
        await raw.cri_unary("RunPodSandbox", request.SerializeToString(), 5)
    assert caught.value.code == "UNKNOWN"
    assert "is reserved" in caught.value.details
    with pytest.raises(CriStatusError, match="UNIMPLEMENTED"):
        await anext(raw.cri_stream("GetContainerEvents", b""))
