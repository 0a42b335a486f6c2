"""The floor of the benchmarks: the same pods, started by bare CRI calls with nothing between.

For each pod: ImageStatus, RunPodSandbox, then for each container CreateContainer and StartContainer, over
one plain gRPC connection, by 1, 2, 4 or 8 callers at once. The requests are made before the clock runs,
from the same specs that the agent sends, so that nothing but the runtime's own work is measured. Images
must be present.

    python -m script.benchmarks.floor --endpoint unix:///run/x.sock --image registry.local/busybox:1 --pods 30

`script/bench` imports `measure` and gives it the specs of its own pods.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec

from kubeletx.api import ImageSpec, PodUid, Process, SandboxSpec, UnitSpec, names
from kubeletx.cri import methods
from kubeletx.cri.convert import sandbox_to_cri, unit_to_cri
from kubeletx.cri.methods import Method
from kubeletx.cri.stubs import runtime_v1_pb2 as pb
from kubeletx.cri.url import parse_url

CALLERS = (2, 4, 8)
MARK = "kubeletx.io/bench-floor"


class FloorPod(msgspec.Struct, frozen=True):
    """The sandbox and units that the agent would create for one pod."""

    sandbox: SandboxSpec
    units: tuple[UnitSpec, ...]


class FloorResult(msgspec.Struct, frozen=True):
    """Times of one run of the floor.

    `seconds`: from the first call to the last container's start, as the runtime reports it.
    """

    callers: int
    pods: int
    seconds: float
    slowest_pod_seconds: float
    starts: list[float] = []
    """Each container's start after the first call, in seconds, sorted."""

    @property
    def pods_per_second(self) -> float:
        """Number of pods started per second."""
        return self.pods / self.seconds


class Calls:
    """Plain gRPC channel to a CRI server, which sends and returns messages unchanged."""

    def __init__(self, url: str) -> None:
        self.channel = grpc.aio.insecure_channel(
            parse_url(url).address,
            options=(("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0)),
        )

    def prepare(self, method: Method[Any, Any]) -> Any:
        """Make the callable for one CRI method."""
        return self.channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.answer.FromString,
        )


class Prepared(msgspec.Struct):
    """Requests of one pod, made before the clock runs; the sandbox's id is filled in when it is known."""

    sandbox: pb.RunPodSandboxRequest
    images: list[pb.ImageStatusRequest]
    containers: list[pb.CreateContainerRequest]


def prepare(pod: FloorPod, *, marked: bool = True) -> Prepared:
    """Build every message of a pod. `marked` False: without the label by which `remove` finds its sandbox."""
    config = sandbox_to_cri(pod.sandbox)
    if marked:
        config.labels[MARK] = "true"
    return Prepared(
        sandbox=pb.RunPodSandboxRequest(config=config, runtime_handler=pod.sandbox.handler),
        images=[pb.ImageStatusRequest(image=pb.ImageSpec(image=unit.image.requested)) for unit in pod.units],
        containers=[
            pb.CreateContainerRequest(config=unit_to_cri(unit), sandbox_config=config) for unit in pod.units
        ],
    )


class Started(msgspec.Struct):
    """Ids of the sandboxes and containers that `start_pods` has made."""

    sandbox_ids: list[str] = []
    container_ids: list[str] = []
    slowest_pod_seconds: float = 0.0


async def start_pods(calls: Calls, pods: Sequence[Prepared], callers: int) -> Started:
    """Start `pods` with `callers` concurrent callers; returns when the last StartContainer was answered."""
    image_status = calls.prepare(methods.IMAGE_STATUS)
    run_sandbox = calls.prepare(methods.RUN_POD_SANDBOX)
    create = calls.prepare(methods.CREATE_CONTAINER)
    start = calls.prepare(methods.START_CONTAINER)
    waiting = list(reversed(pods))
    started = Started()

    async def caller() -> None:
        while waiting:
            pod = waiting.pop()
            begun = time.monotonic()
            for image in pod.images:
                await image_status(image)
            sandbox_id = (await run_sandbox(pod.sandbox)).pod_sandbox_id
            started.sandbox_ids.append(sandbox_id)
            for container in pod.containers:
                container.pod_sandbox_id = sandbox_id
                container_id = (await create(container)).container_id
                await start(pb.StartContainerRequest(container_id=container_id))
                started.container_ids.append(container_id)
            started.slowest_pod_seconds = max(started.slowest_pod_seconds, time.monotonic() - begun)

    async with asyncio.TaskGroup() as group:
        for number in range(callers):
            group.create_task(caller(), name=f"floor-{number}")
    return started


async def measure(
    url: str, pods: Sequence[FloorPod], callers: int, *, on_started: Callable[[], None] = lambda: None
) -> FloorResult:
    """Start `pods` with `callers` concurrent callers, and remove them.

    `on_started` is called once all have started.
    """
    calls = Calls(url)
    status = calls.prepare(methods.CONTAINER_STATUS)
    prepared = [prepare(pod) for pod in pods]
    try:
        await calls.prepare(methods.VERSION)(pb.VersionRequest())
        begun_ns = time.time_ns()
        started = await start_pods(calls, prepared, callers)
        starts = []
        for container_id in started.container_ids:
            answer = await status(pb.ContainerStatusRequest(container_id=container_id))
            starts.append((answer.status.started_at - begun_ns) / 1e9)
        on_started()
        return FloorResult(callers, len(pods), max(starts), started.slowest_pod_seconds, sorted(starts))
    finally:
        await remove(calls)
        await calls.channel.close(grace=None)


async def remove(calls: Calls, *, marked: bool = True) -> None:
    """Remove every sandbox of a floor run, at most eight at a time.

    `marked` False: every sandbox of the runtime.
    """
    labels = {MARK: "true"} if marked else {}
    answer = await calls.prepare(methods.LIST_POD_SANDBOX)(
        pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(label_selector=labels))
    )
    remove_sandbox = calls.prepare(methods.REMOVE_POD_SANDBOX)
    limit = asyncio.Semaphore(8)

    async def one(sandbox_id: str) -> None:
        async with limit:
            await remove_sandbox(pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id))

    await asyncio.gather(*(one(item.id) for item in answer.items))


async def measure_best(
    url: str, pods: Sequence[FloorPod], callers: Sequence[int] = CALLERS
) -> list[FloorResult]:
    """Measure once for each number of callers; the fastest result comes first."""
    results = [await measure(url, pods, number) for number in callers]
    return sorted(results, key=lambda result: result.seconds)


def plain_pods(count: int, image: str, log_directory: Path, handler: str = "") -> list[FloorPod]:
    """Pods of one sleeping container each, labelled as the agent labels its own."""
    pods = []
    for number in range(count):
        name = f"floor-{number}"
        uid = PodUid(f"00000000-0000-4000-8000-{number:012d}")
        labels = {names.POD_NAME: name, names.POD_NAMESPACE: "default", names.POD_UID: uid}
        unit = UnitSpec(
            name="main",
            image=ImageSpec(requested=image),
            detail=Process(command=("sleep", "100000")),
            labels={**labels, names.CONTAINER_NAME: "main"},
            log_path="main/0.log",
        )
        directory = log_directory / name
        (directory / "main").mkdir(parents=True)
        sandbox = SandboxSpec(
            uid=uid,
            name=name,
            namespace="default",
            handler=handler,
            hostname=name,
            labels=labels,
            log_directory=str(directory),
        )
        pods.append(FloorPod(sandbox, (unit,)))
    return pods


def main() -> None:
    """Measure with each number of callers, and print one line for each."""
    parser = argparse.ArgumentParser(description="throughput of bare CRI calls")
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--pods", type=int, default=30)
    parser.add_argument("--handler", default="")
    parser.add_argument("--callers", type=int, nargs="+", default=list(CALLERS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kubeletx-floor-") as logs:
        pods = plain_pods(options.pods, options.image, Path(logs), options.handler)
        for result in asyncio.run(measure_best(options.endpoint, pods, options.callers)):
            print(
                f"{result.callers} callers: {result.pods} pods in {result.seconds:.2f} s, "
                f"{result.pods_per_second:.1f} pods/s, slowest pod {result.slowest_pod_seconds:.2f} s"
            )


if __name__ == "__main__":
    main()
