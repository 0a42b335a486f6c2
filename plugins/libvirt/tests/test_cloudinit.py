"""The seed: what a guest reads of its pod."""

from __future__ import annotations

from email import message_from_bytes
from pathlib import Path
from typing import Any

import msgspec
import pycdlib
import pytest
import yaml
from kubeletx_libvirt.cloudinit import (
    ANNOTATIONS,
    Seed,
    build_seed,
    check_settings,
    write_seed,
)
from kubeletx_libvirt.config import Route
from kubeletx_libvirt.network.links import GuestLink, LinkKind
from kubeletx_libvirt.shares import Share, ShareKind

from kubeletx.api import CloudInit, Dns, HostEntry, InvalidPod, Machine
from kubeletx.testing import sandbox_spec

LINK = GuestLink(
    name="eth0",
    kind=LinkKind.DIRECT,
    source="kxp0",
    mac="02:00:00:00:00:01",
    addresses=("10.88.0.5/22",),
    routes=(Route(destination="0.0.0.0/0", gateway="10.88.0.1"),),
    dns=Dns(servers=("10.96.0.10",), searches=("default.svc.cluster.local",)),
    mtu=1450,
)


def seed(cloud_init: CloudInit | None = None, **changes: Any) -> Seed:
    sandbox = sandbox_spec("web", uid="u1", hosts=changes.pop("hosts", ()))
    names = ("hostname", "settings")
    machine = Machine(
        cloud_init=cloud_init or CloudInit(), **{k: changes.pop(k) for k in names if k in changes}
    )
    return build_seed(machine, sandbox, **({"links": (LINK,)} | changes))


def share(tag: str, target: str, kind: ShareKind, *, read_only: bool = False, file: str = "") -> Share:
    place = f"/node/{tag}"
    return Share(
        volume="v",
        tag=tag,
        kind=kind,
        origin=place,
        directory=place,
        target=target,
        read_only=read_only,
        file=file,
    )


def meta(made: Seed) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(made.meta_data)
    return data


def parts_of(made: Seed) -> list[tuple[str, object]]:
    """Type and content of each part of the user data."""
    message = message_from_bytes(made.user_data)
    assert message.is_multipart()
    parts = [part for part in message.walk() if not part.is_multipart()]
    return [(part.get_content_type(), part.get_payload(decode=True)) for part in parts]


def network(made: Seed) -> dict[str, Any]:
    assert made.network_config is not None
    data: dict[str, Any] = yaml.safe_load(made.network_config)
    return data


def test_a_machine_needs_neither_key_nor_user_data() -> None:
    made = seed(hostname="TestVM")
    assert meta(made) == {
        "local-hostname": "testvm",
        "pod-name": "web",
        "pod-namespace": "default",
        "instance-id": "u1",
    }
    assert made.user_data == b""
    assert made.vendor_data is None


def test_the_instance_is_the_pods_for_as_long_as_its_disk() -> None:
    assert meta(seed(CloudInit(meta_data={"instance-id": "mine", "role": "db"})))["instance-id"] == "u1"


def test_keys_stand_in_the_meta_data_so_that_user_data_stays_as_it_is() -> None:
    data = b"#cloud-config\nssh_authorized_keys: [mine]\n"
    made = seed(CloudInit(user_data=data, ssh_keys=("ssh-ed25519 AAAA a\nssh-rsa BBBB b\n",)))
    assert meta(made)["public-keys"] == ["ssh-ed25519 AAAA a", "ssh-rsa BBBB b"]
    assert made.user_data == data


def test_a_key_pair_is_the_operators_key_and_an_unknown_one_is_refused() -> None:
    settings = {"kubeletx.io/vm-key-pair-name": "ops"}
    assert meta(seed(settings=settings, key_pairs={"ops": "ssh-ed25519 CCCC\n"}))["public-keys"] == [
        "ssh-ed25519 CCCC"
    ]
    with pytest.raises(InvalidPod, match=r"keyPairName.*'ops'.*use one of: dev"):
        seed(settings=settings, key_pairs={"dev": "x"})


@pytest.mark.parametrize("data", [b"#!/bin/sh\necho \xff\x00", b"\x1f\x8b\x08binary", b"plain"])
def test_user_data_alone_reaches_the_guest_byte_for_byte(data: bytes) -> None:
    assert seed(CloudInit(user_data=data)).user_data == data


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo hi", b"#!/bin/sh\necho hi"),
        ("# hi\necho", b"#!/bin/sh\n# hi\necho"),
        ("#!/bin/bash\nx", b"#!/bin/bash\nx"),
    ],
)
def test_a_script_alone_is_the_user_data(script: str, found: bytes) -> None:
    assert seed(CloudInit(script=script)).user_data == found


def test_user_data_and_script_come_as_two_parts_the_users_first() -> None:
    data = b"#cloud-config\npackages: [nginx]\n"
    made = seed(CloudInit(user_data=data, script="echo hi"))
    assert parts_of(made) == [
        ("text/cloud-config", data),
        ("text/x-shellscript", b"#!/bin/sh\necho hi"),
    ]
    assert seed(CloudInit(user_data=data, script="echo hi")) == made


def test_a_message_of_the_users_own_keeps_its_parts() -> None:
    inner = seed(CloudInit(user_data=b"#cloud-config\na: 1\n", script="echo one")).user_data
    found = parts_of(seed(CloudInit(user_data=inner, script="echo two")))
    assert [content for _, content in found] == [
        b"#cloud-config\na: 1\n",
        b"#!/bin/sh\necho one",
        b"#!/bin/sh\necho two",
    ]


def test_the_network_is_static_and_complete() -> None:
    assert network(seed()) == {
        "version": 2,
        "ethernets": {
            "eth0": {
                "match": {"macaddress": "02:00:00:00:00:01"},
                "set-name": "eth0",
                "mtu": 1450,
                "dhcp4": False,
                "dhcp6": False,
                "addresses": ["10.88.0.5/22"],
                "routes": [{"to": "0.0.0.0/0", "via": "10.88.0.1"}],
                "nameservers": {"addresses": ["10.96.0.10"], "search": ["default.svc.cluster.local"]},
            }
        },
    }


def test_a_gateway_outside_the_subnet_is_reached_on_the_link() -> None:
    link = GuestLink(
        name="eth0",
        kind=LinkKind.DIRECT,
        source="d",
        mac="m",
        addresses=("10.1.2.3/32",),
        routes=(
            Route(destination="169.254.1.1/32"),
            Route(destination="0.0.0.0/0", gateway="169.254.1.1"),
        ),
    )
    assert network(seed(links=(link,)))["ethernets"]["eth0"]["routes"] == [
        {"to": "169.254.1.1/32", "scope": "link"},
        {"to": "0.0.0.0/0", "via": "169.254.1.1", "on-link": True},
    ]


def test_dhcp_and_nothing_at_all_are_options() -> None:
    key = "kubeletx.io/vm-network-config"
    eth0 = network(seed(settings={key: "dhcp"}))["ethernets"]["eth0"]
    assert (eth0["dhcp4"], eth0["dhcp6"]) == (True, False)
    assert not {"addresses", "routes"} & eth0.keys()
    assert eth0["nameservers"] == {"addresses": ["10.96.0.10"], "search": ["default.svc.cluster.local"]}
    assert seed(settings={key: "none"}).network_config is None
    with pytest.raises(InvalidPod, match="use static, dhcp or none"):
        seed(settings={key: "magic"})


def test_dhcp_reports_the_pod_networks_ipv4_address_and_everything_else_stays_static() -> None:
    key = "kubeletx.io/vm-network-config"
    both = GuestLink(
        name="eth0",
        kind=LinkKind.DIRECT,
        source="d",
        mac="m",
        addresses=("10.1.2.3/24", "fd00::3/64"),
        routes=(
            Route(destination="0.0.0.0/0", gateway="10.1.2.1"),
            Route(destination="::/0", gateway="fd00::1"),
        ),
        ipv6=True,
    )
    extra = GuestLink(name="eth1", kind=LinkKind.BRIDGE, source="b", mac="n", addresses=("192.0.2.9/24",))
    found = network(seed(links=(both, extra), settings={key: "dhcp"}))["ethernets"]
    assert (found["eth0"]["dhcp4"], found["eth0"]["addresses"]) == (True, ["fd00::3/64"])
    assert found["eth0"]["routes"] == [{"to": "::/0", "via": "fd00::1"}]
    assert (found["eth1"]["dhcp4"], found["eth1"]["addresses"]) == (False, ["192.0.2.9/24"])
    only_six = msgspec.structs.replace(both, addresses=("fd00::3/64",))
    with pytest.raises(InvalidPod, match="gives no IPv4 address"):
        seed(links=(only_six,), settings={key: "dhcp"})


def test_a_network_of_its_own_dhcp_still_gets_the_operators_name_servers() -> None:
    link = GuestLink(
        name="eth1", kind=LinkKind.BRIDGE, source="b", mac="n", dhcp=True, dns=Dns(servers=("192.0.2.53",))
    )
    eth1 = network(seed(links=(link,)))["ethernets"]["eth1"]
    assert (eth1["dhcp4"], eth1["nameservers"]["addresses"]) == (True, ["192.0.2.53"])


def test_mounts_and_host_aliases_are_a_boot_hook_that_is_a_shell_script_too() -> None:
    mounts = (
        share("kx1", "/data dir", ShareKind.VIRTIOFS, read_only=True),
        share("kx2", "/etc/app.conf", ShareKind.NINE_P, file="app.conf"),
    )
    hook = seed(shares=mounts, hosts=(HostEntry(ip="10.0.0.9", names=("db", "db.local")),)).vendor_data
    assert hook is not None
    lines = hook.decode().splitlines()
    assert lines[:2] == ["#cloud-boothook", "#!/bin/sh"]
    assert any(line.endswith("mount -t virtiofs -o ro kx1 '/data dir'") for line in lines)
    assert any(line.endswith("mount -o bind /run/kubeletx/kx2/app.conf /etc/app.conf") for line in lines)
    assert any("10.0.0.9\tdb db.local" in line for line in lines)


def test_a_seed_never_shows_its_secrets() -> None:
    assert "password" not in repr(seed(CloudInit(user_data=b"password")))


def test_the_image_is_labelled_and_private_and_holds_the_files_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "seed.iso"
    path.write_bytes(b"older")
    path.chmod(0o644)
    made = seed(CloudInit(user_data=b"x" * 70_000), shares=(share("t", "/t", ShareKind.NINE_P),))
    write_seed(path, made)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["seed.iso"]
    assert path.read_bytes()[32808:32840].strip() == b"CIDATA"
    iso = pycdlib.PyCdlib()
    iso.open(str(path))
    try:
        assert {name: _read(iso, f"/{name}") for name in made.files()} == made.files()
    finally:
        iso.close()


def test_the_smallest_image_can_be_read_as_far_as_guests_look_for_labels(tmp_path: Path) -> None:
    write_seed(tmp_path / "seed.iso", seed(CloudInit()))
    content = (tmp_path / "seed.iso").read_bytes()
    assert len(content) % 2048 == 0
    assert len(content) >= 68 * 1024 + 4096  # busybox's findfs, with room
    assert content[-300 * 1024 :].count(0) == 300 * 1024


def _read(iso: pycdlib.PyCdlib, name: str) -> bytes:
    with iso.open_file_from_iso(rr_path=name) as file:
        content: bytes = file.read()
    return content


def test_a_misspelt_annotation_is_refused_with_the_one_that_was_meant() -> None:
    check_settings(Machine(settings={"kubeletx.io/vm-network-config": "dhcp"}))
    with pytest.raises(InvalidPod, match=r"\[kubeletx\.io/vm-user-dat\].*kubeletx\.io/vm-user-data\?$"):
        check_settings(Machine(settings={"kubeletx.io/vm-user-dat": "x"}))
    assert len(ANNOTATIONS) == len(set(ANNOTATIONS)) > 10
