"""Machines on the pod network, as users see it: by pod IP, by host port, and nothing left afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kubeletx_libvirt.network.names import guest_device, outer_device

from kubeletx_testing.lab import Lab, free_port, put_manifest
from kubeletx_testing.lab.machines import load_machine_image
from tests.integration.support.bench import Bench
from tests.integration.support.machines import machine_manifest
from tests.integration.support.vm_pods import address_of, ask, make_machines


@pytest.fixture(scope="module")
def bench(make_bench: Callable[..., Bench], lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_machines(make_bench, lab, tmp_path_factory.mktemp("network"))


def ports(lab: Lab) -> set[str]:
    """Ports of the lab's bridge: one for each pod on the network."""
    return {path.name for path in Path("/sys/class/net", lab.network.bridge, "brif").iterdir()}


def devices_of(bench: Bench, name: str) -> list[Path]:
    """What stands in the node's namespace for a pod's guest; it has to be there now."""
    uid = bench.ready(name).metadata.uid
    found = [Path("/sys/class/net", device) for device in (guest_device(uid), outer_device(uid))]
    assert all(path.exists() for path in found)
    return found


def test_the_node_and_containers_reach_a_machine_also_after_a_crash_and_it_is_released_in_order(
    bench: Bench, lab: Lab
) -> None:
    """The machine has the sample pod's vpc and port, which join the pod network with warnings."""
    before, taken = ports(lab), lab.network.list_addresses()
    spec = {"vpc": "demo", "nics": [{"portId": "04fe371d-fddf-43c4-9419-b7d9cd4a2197"}]}
    machine = put_manifest(bench.manifests, machine_manifest("vm-one", spec=spec))
    address = address_of(bench, "vm-one")
    assert address in lab.network.list_addresses()
    devices = devices_of(bench, "vm-one")
    assert ask(address) == "vm-one\n"
    assert bench.run("client", f"wget -q -O - http://{address}/") == "vm-one\n"
    events = json.dumps([str(event) for event in bench.events("vm-one")])
    assert "spec.vpc" in events
    assert "portId" in events
    boot = ask(address, "/cgi-bin/facts")
    bench.agent.kill()
    assert ask(address) == "vm-one\n"
    bench.agent.start()
    assert address_of(bench, "vm-one") == address
    assert ask(address, "/cgi-bin/facts").split("boot-id")[1][:38] == boot.split("boot-id")[1][:38]
    for path in (machine, bench.manifests / "client.json"):
        path.unlink()
    for name in ("vm-one", "client"):
        bench.agent.wait_gone(name)
    assert lab.network.list_addresses() == taken
    assert ports(lab) == before
    assert [path.name for path in devices if path.exists()] == []


def test_a_host_port_of_a_machine_written_as_a_container_leads_into_the_guest(bench: Bench, lab: Lab) -> None:
    assert lab.network.has_portmap
    port = free_port()
    image = str(load_machine_image())
    container = {"name": "vm", "image": image, "ports": [{"containerPort": 80, "hostPort": port}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "vm-port", "annotations": {"kubeletx.io/workload-type": "vm"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    put_manifest(bench.manifests, pod)
    address = address_of(bench, "vm-port")
    assert ask(address) == ask(lab.network.gateway, port=port) == "vm-port-lab\n"
    (bench.manifests / "vm-port.json").unlink()
    bench.agent.wait_gone("vm-port")


def test_a_machine_on_the_nodes_network_is_refused_in_words(bench: Bench) -> None:
    put_manifest(bench.manifests, machine_manifest("vm-host", spec={"hostNetwork": True}))
    pod = bench.until("vm-host", lambda pod: pod.status.reason == "RuntimeUnsupported")
    assert pod.status.phase == "Pending"
    assert "network" in (pod.status.message or "")
    (bench.manifests / "vm-host.json").unlink()
    bench.agent.wait_gone("vm-host")
