"""The guest reports what it read of its seed."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
import yaml

from kubeletx_testing.lab import Lab, put_manifest
from tests.integration.support.bench import Bench
from tests.integration.support.machines import machine_manifest
from tests.integration.support.vm_pods import address_of, ask, make_machines

USER_DATA = b"#!/bin/sh\necho once > /tmp/ran\nmv /tmp/ran /www/ran\n"

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBpOyMzs1yFhcdJpGqCFOQdNcGw6Xz7sRP8nTGe1u2hB"


@pytest.fixture(scope="module")
def bench(make_bench: Callable[..., Bench], lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    directory = tmp_path_factory.mktemp("cloudinit")
    return make_machines(make_bench, lab, directory, keyPairs={"ops": f"{KEY} ops"})


def test_the_guest_reads_name_keys_user_data_network_and_aliases(bench: Bench) -> None:
    machine = {
        "name": "TestVM",
        "keyPairName": "ops",
        "publicKey": f"{KEY} me",
        "userData": base64.b64encode(USER_DATA).decode(),
    }
    aliases = [{"ip": "192.0.2.7", "hostnames": ["db.example"]}]
    put_manifest(bench.manifests, machine_manifest("vm-seed", machine=machine, spec={"hostAliases": aliases}))
    address = address_of(bench, "vm-seed")
    assert ask(address) == "testvm\n"
    meta = yaml.safe_load(ask(address, "/seed/meta-data"))
    uid = bench.ready("vm-seed").metadata.uid
    assert meta["instance-id"] == uid
    assert meta["local-hostname"] == "testvm"
    assert meta["public-keys"] == [f"{KEY} me", f"{KEY} ops"]
    assert ask(address, "/seed/user-data").encode() == USER_DATA
    assert ask(address, "/ran") == "once\n"
    network = yaml.safe_load(ask(address, "/seed/network-config"))
    (given,) = network["ethernets"]["eth0"]["addresses"]
    assert given.split("/")[0] == address
    assert given in ask(address, "/cgi-bin/facts")
    assert "192.0.2.7" in ask(address, "/seed/vendor-data")
    (bench.manifests / "vm-seed.json").unlink()
    bench.agent.wait_gone("vm-seed")
