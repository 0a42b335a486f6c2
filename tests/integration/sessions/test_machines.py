"""Sessions of machines, which are frozen while they have none, and resumed so that sessions can end before the machine does.

A guest has no Unix socket of the node: it reads its certificate and metadata from a share, and connects to the node's
address. In the quick test, the guest runs no program, and the test connects in its place.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import kubeletx_session
import pytest

from kubeletx.kube.types.core import Pod
from kubeletx.sessions.stubs import session_service_pb2 as pb
from kubeletx_testing.instance_client import InstanceClient
from kubeletx_testing.lab import Lab, free_port, put_manifest
from kubeletx_testing.lab.machines import Kernel, load_machine_image
from kubeletx_testing.lab.tiny_machine import make_tiny_machine_image
from tests.integration.support.bench import Bench
from tests.integration.support.machines import machine_manifest
from tests.integration.support.vm_pods import address_of, ask, make_machines

REPOSITORY = Path(__file__).parents[3]
SECONDS = 300
"""Time that a step may take on a busy machine; also the grace period, so that no evacuation reaches its deadline."""
PORT = 8080
SCRIPT = f"""#!/bin/sh
export KUBELETX_SESSION_DIRECTORY=/run/kubeletx/session PORT={PORT} PYTHONDONTWRITEBYTECODE=1
export LD_LIBRARY_PATH=/libraries PYTHONPATH=/sdk:/packages PYTHONHOME=/python
/python/bin/python{sys.version_info.major}.{sys.version_info.minor} /application/counters.py > /dev/console 2>&1 &
"""
SHARES = {
    "python": Path(sys.base_prefix),
    "packages": Path(grpc.__file__).parents[1],
    "libraries": Path("/usr/lib/x86_64-linux-gnu"),
    "sdk": Path(kubeletx_session.__file__).parents[1],
    "application": REPOSITORY / "examples" / "sessions",
}
"""Directories of the node, by their names in the guest."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def tiny_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_machine_image(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def bench(
    make_bench: Callable[..., Bench], lab: Lab, tiny_image: Path, tmp_path_factory: pytest.TempPathFactory
) -> Bench:
    service = {"sessionServiceAddress": f"0.0.0.0:{free_port('0.0.0.0')}", "sessionLivenessTimeout": "300s"}
    images = [str(load_machine_image().parent), str(tiny_image.parent)]
    directory = tmp_path_factory.mktemp("sessions")
    return make_machines(make_bench, lab, directory, agent={"kubeletx": service}, imageDirectories=images)


def put(bench: Bench, name: str, image: Path, **machine: Any) -> None:
    mounts = [{"name": share, "mountPath": f"/{share}", "readOnly": True} for share in SHARES]
    volumes = [{"name": share, "hostPath": {"path": str(path)}} for share, path in SHARES.items()]
    made = machine_manifest(
        name,
        image=str(image),
        machine={**machine, **({"volumeMounts": mounts} if machine else {})},
        spec={"terminationGracePeriodSeconds": SECONDS, **({"volumes": volumes} if machine else {})},
        metadata={"annotations": {"kubeletx.io/sessions": "true", "kubeletx.io/standby": "standby"}},
    )
    put_manifest(bench.manifests, made)


def rests(pod: Pod) -> bool:
    return any(one.type == "kubeletx.io/Standby" and one.status == "True" for one in pod.status.conditions)


def is_in(power: str) -> Callable[[Pod], bool]:
    def is_wanted(pod: Pod) -> bool:
        status = pod.status.virtual_machine_status
        return status is not None and status.power_state == power

    return is_wanted


def command(bench: Bench, *words: str) -> str:
    done = bench.agent.cli(*words, timeout_seconds=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def session(bench: Bench, name: str) -> dict[str, Any]:
    items = json.loads(command(bench, "session", "list", "-o", "json"))["items"]
    found: dict[str, Any] = next(item for item in items if item["name"] == name)
    return found


async def test_a_session_wakes_a_machine_and_ends_before_it_even_if_the_machine_is_paused(
    bench: Bench, tiny_image: Path
) -> None:
    async def until(is_wanted: Callable[[Pod], bool]) -> Pod:
        return await asyncio.to_thread(bench.until, "tiny", is_wanted, seconds=SECONDS)

    put(bench, "tiny", tiny_image)
    pod = await until(is_in("running"))
    directory = bench.agent.root_dir / "pods" / pod.uid / "session"
    service = json.loads((directory / "metadata.json").read_text())["service"]
    async with InstanceClient(service, directory) as client:
        await client.attach()
        await until(rests)
        opening = asyncio.create_task(
            asyncio.to_thread(
                command, bench, "session", "open", pod.name, "--name", "s1", "--open-timeout", "300s"
            )
        )
        message = await client.read()
        assert message is not None
        assert message.messageType == pb.OPEN_SESSION
        await client.report("default/s1", pb.STATE_OPEN)
        assert await opening == "session/s1 Ready\n"
        await until(is_in("running"))
        await asyncio.to_thread(command, bench, "vm", "pause", pod.name)
        await until(is_in("paused"))
        (bench.manifests / "tiny.json").unlink()
        message = await client.read()
        assert message is not None
        assert message.messageType == pb.CLOSE_SESSION
        await until(is_in("running"))
        await client.report("default/s1", pb.STATE_CLOSED)
        await asyncio.to_thread(bench.agent.wait_gone, "tiny", timeout_seconds=SECONDS)
    assert session(bench, "s1")["reason"] == "Evacuated"


@pytest.mark.long
def test_an_application_in_a_guest_serves_sessions(bench: Bench) -> None:
    image = load_machine_image(kernel=Kernel.GENERIC)
    put(bench, "game", image, cloudInitUserDataScript=SCRIPT)
    address = address_of(bench, "game")
    name = bench.until("game", rests, seconds=SECONDS).name

    command(bench, "session", "open", name, "--name", "ann", "--data", "41", "--open-timeout", "300s")
    assert ask(address, "/ann", port=PORT) == "42\n"
    metadata = json.loads(command(bench, "exec", name, "--", "cat", "/run/kubeletx/session/metadata.json"))
    assert metadata["podId"] == f"default/{name}"
    assert [(one["id"], one["data"]) for one in metadata["sessions"]] == [("default/ann", "41")]
    assert command(bench, "session", "close", "ann") == "session/ann Terminated\n"
    bench.until("game", rests, seconds=SECONDS)
    usage = json.loads(command(bench, "session", "usage", "-o", "json"))["sessions"]
    costs = next(one["costs"] for one in usage if one["name"] == "ann")
    assert 0 < costs["cpuSeconds"] < 2 * costs["openSeconds"]
    assert 64 << 20 < costs["memoryByteSeconds"] / costs["openSeconds"] < 512 << 20

    command(bench, "session", "open", name, "--name", "bob", "--data", "1", "--open-timeout", "300s")
    command(bench, "vm", "pause", name)
    bench.remove("game", seconds=SECONDS)
    assert session(bench, "bob")["reason"] == "Evacuated"
