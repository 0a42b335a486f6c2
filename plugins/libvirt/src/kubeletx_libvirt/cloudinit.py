"""NoCloud seed for cloud-init in the guest. Pure except `write_seed`.

    meta-data       the guest's identity and SSH keys: keys here never conflict with user-data
    user-data       the pod's userData, byte for byte; with a script as well, both as parts of one MIME message
    vendor-data     the node's additions: shared directories and hostAliases, as a boot hook that runs at each
                    boot before anything in user-data. It is also a plain shell script, for guests that support
                    only a part of cloud-init. As vendor-data, it overrides nothing in the user's cloud-config
    network-config  version 2, static: the guest uses the pod network's address without DHCP,
                    unless an annotation of the pod (`NETWORK_CONFIG`) demands DHCP

Source: cloud-init's documentation of the NoCloud data source, network configuration version 2, user-data
formats.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from email import message_from_bytes, policy
from email.encoders import encode_base64
from email.mime.base import MIMEBase
from email.mime.multipart import MIMEMultipart
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import yaml

from kubeletx.api import HostEntry, InvalidPod, Machine, SandboxSpec, names
from kubeletx.api.specs import Spec
from kubeletx_libvirt.access import give
from kubeletx_libvirt.network.links import GuestLink, LinkKind
from kubeletx_libvirt.shares import Share

LABEL: Final = "CIDATA"
PADDING_BYTES: Final = 150 * 2048
"""Number of zero bytes after the file system of a seed image."""
KEY_PAIR: Final = "kubeletx.io/vm-key-pair-name"
"""Key in `Machine.settings` for virtualMachine.keyPairName."""
NETWORK_CONFIG: Final = "kubeletx.io/vm-network-config"
"""Key in `Machine.settings` for how the guest gets its addresses.

Values: static (default); dhcp for the pod network's IPv4 address; none for an image that configures its
network itself.
"""

SETTINGS: Final = frozenset({KEY_PAIR, NETWORK_CONFIG})
"""Keys of `Machine.settings` that the plugin reads."""
ANNOTATIONS: Final = (
    NETWORK_CONFIG,
    *sorted(v for v in vars(names).values() if str(v).startswith(names.VM_PREFIX) and v != names.VM_PREFIX),
)
"""All annotations for machines that a manifest may contain."""

_TYPES: Final = (
    (b"#cloud-config-archive", "text/cloud-config-archive"),
    (b"#cloud-config", "text/cloud-config"),
    (b"#cloud-boothook", "text/cloud-boothook"),
    (b"#include-once", "text/x-include-once-url"),
    (b"#include", "text/x-include-url"),
    (b"#part-handler", "text/part-handler"),
    (b"## template: jinja", "text/jinja2"),
    (b"#!", "text/x-shellscript"),
    (b"\x1f\x8b", "application/x-gzip"),
)


class Seed(Spec, frozen=True, kw_only=True):
    """Contents of the files in a seed; None for a file that the seed does not have."""

    meta_data: bytes
    user_data: bytes = b""
    vendor_data: bytes | None = None
    network_config: bytes | None = None

    def __repr__(self) -> str:
        return "Seed(...)"

    def files(self) -> dict[str, bytes]:
        """Return the content of each file that the seed has, by file name."""
        named = {
            "meta-data": self.meta_data,
            "user-data": self.user_data,
            "vendor-data": self.vendor_data,
            "network-config": self.network_config,
        }
        return {name: content for name, content in named.items() if content is not None}


def check_settings(machine: Machine) -> None:
    """Raise InvalidPod if the machine has a setting, given as an annotation, that the plugin does not know."""
    for name in sorted(machine.settings.keys() - SETTINGS):
        raise InvalidPod(
            field=f"metadata.annotations[{name}]",
            problem="is not a setting of a machine",
            fix=f"remove it; did you mean {get_close_matches(name, ANNOTATIONS, 1, 0)[0]}?",
        )


def build_seed(
    machine: Machine,
    sandbox: SandboxSpec,
    *,
    links: Sequence[GuestLink],
    shares: Sequence[Share] = (),
    key_pairs: Mapping[str, str] | None = None,
) -> Seed:
    """Build the seed of one machine of the pod `sandbox`.

    `links`: the guest's network interfaces. `shares`: directories that the guest mounts. `key_pairs`: the operator's SSH
    public keys by name. Raises InvalidPod for an unknown key pair or an unknown mode of network configuration.
    """
    hook = _boot_hook(shares, sandbox.hosts)
    return Seed(
        meta_data=_meta_data(machine, sandbox, links, key_pairs or {}),
        user_data=_user_data(machine),
        vendor_data=hook or None,
        network_config=_network_config(machine, links),
    )


def write_seed(path: Path, seed: Seed, reader_gid: int | None = None) -> None:
    """Write the seed as an ISO 9660 image labelled CIDATA; replaces an older one atomically. Blocking.

    `reader_gid`: group that may read the file (mode 0640); None: only root (mode 0600).
    """
    import pycdlib

    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=LABEL)
    try:
        for name, content in seed.files().items():
            short = name.upper().replace("-", "_")
            iso.add_fp(BytesIO(content), len(content), f"/{short}.;1", rr_name=name, joliet_path=f"/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            iso.write_fp(file)
            # Padded as by all ISO tools: guests that look for labels read past the end of such a small file system,
            # and take the error for an empty drive (busybox reads up to 68 KiB).
            file.truncate(file.seek(0, os.SEEK_END) + PADDING_BYTES)
        if reader_gid is not None:
            give(new, reader_gid, 0o640)
        new.replace(path)
    finally:
        iso.close()


# --- meta-data ---


def _meta_data(
    machine: Machine, sandbox: SandboxSpec, links: Sequence[GuestLink], key_pairs: Mapping[str, str]
) -> bytes:
    data: dict[str, Any] = {
        "local-hostname": (machine.hostname or sandbox.name).lower(),
        "pod-name": sandbox.name,
        "pod-namespace": sandbox.namespace,
    }
    keys = _ssh_keys(machine, key_pairs)
    if keys:
        data["public-keys"] = keys
    tags = [{"name": link.name, "mac": link.mac, "tag": link.tag} for link in links if link.tag]
    if tags:
        data["network-tags"] = tags
    data |= machine.cloud_init.meta_data or {}
    # The same for as long as the pod keeps its disk: with another id, cloud-init would set up the guest again.
    data["instance-id"] = str(sandbox.uid)
    return _yaml(data)


def _ssh_keys(machine: Machine, key_pairs: Mapping[str, str]) -> list[str]:
    keys = [key.strip() for text in machine.cloud_init.ssh_keys for key in text.split("\n") if key.strip()]
    name = machine.settings.get(KEY_PAIR)
    if name:
        if name not in key_pairs:
            known = ", ".join(sorted(key_pairs)) or "none"
            raise InvalidPod(
                field="spec.virtualMachine.keyPairName",
                problem=f"{name!r} is not in libvirt.keyPairs of this node",
                fix=f"use one of: {known}; or write the key itself in publicKey",
                reason=names.RUNTIME_UNSUPPORTED,
            )
        keys.append(key_pairs[name].strip())
    return list(dict.fromkeys(keys))


# --- user-data ---


def _user_data(machine: Machine) -> bytes:
    given = machine.cloud_init.user_data or b""
    script = _script(machine.cloud_init.script)
    if not given or not script:
        return given or script
    message = MIMEMultipart(boundary="=" * 15 + hashlib.sha256(given + script).hexdigest()[:24])
    for part in (*_parts("user-data", given), *_parts("script", script)):
        message.attach(part)
    return message.as_bytes(policy=policy.compat32)


def _script(text: str | None) -> bytes:
    """Return the script as bytes, with ``#!/bin/sh`` as its first line if it has no known first line."""
    if not text:
        return b""
    content = text.encode()
    known = any(content.startswith(mark) for mark, _ in _TYPES)
    return content if known else b"#!/bin/sh\n" + content


def _parts(name: str, content: bytes) -> list[Any]:
    """Return one piece of user data as MIME parts; the parts of a multipart message are used unchanged."""
    head = content.lstrip()[:100].lower()
    if head.startswith((b"content-type: multipart", b"mime-version:")):
        message = message_from_bytes(content)
        if message.is_multipart():
            return [part for part in message.walk() if not part.is_multipart()]
    kind = next((kind for mark, kind in _TYPES if head.startswith(mark)), "text/plain")
    main, _, sub = kind.partition("/")
    part = MIMEBase(main, sub)
    part.set_payload(content)
    part.add_header("Content-Disposition", "attachment", filename=name)
    encode_base64(part)
    return [part]


# --- vendor-data ---


def _boot_hook(shares: Sequence[Share], hosts: Sequence[HostEntry]) -> bytes:
    """Return a boot script that may run any number of times; empty if it has nothing to do.

    A mount that fails does not prevent the next one.
    """
    lines = [line for share in shares for line in _mount_lines(share)]
    for entry in hosts:
        line = shlex.quote(f"{entry.ip}\t{' '.join(entry.names)}")
        lines.append(f"grep -qxF {line} /etc/hosts || printf '%s\\n' {line} >>/etc/hosts")
    if not lines:
        return b""
    return "\n".join(["#cloud-boothook", "#!/bin/sh", *lines, "exit 0", ""]).encode()


def _mount_lines(share: Share) -> list[str]:
    options = f" -o {shlex.quote(share.mount_options)}" if share.mount_options else ""
    tag, target, kind = shlex.quote(share.tag), shlex.quote(share.target), share.kind.value
    if not share.file:
        return [
            f"mkdir -p {target}",
            f'grep -qsF " "{target}" " /proc/mounts || mount -t {kind}{options} {tag} {target}',
        ]
    holder = shlex.quote(f"/run/kubeletx/{share.tag}")
    file = shlex.quote(f"/run/kubeletx/{share.tag}/{share.file}")
    return [
        f'mkdir -p {holder} "$(dirname {target})" && touch {target}',
        f'grep -qsF " "{holder}" " /proc/mounts || mount -t {kind}{options} {tag} {holder}',
        f'grep -qsF " "{target}" " /proc/mounts || mount -o bind {file} {target}',
    ]


# --- network-config ---


def _network_config(machine: Machine, links: Sequence[GuestLink]) -> bytes | None:
    way = machine.settings.get(NETWORK_CONFIG, "static")
    if way == "none":
        return None
    if way not in ("static", "dhcp"):
        raise InvalidPod(
            field=f"metadata.annotations[{NETWORK_CONFIG}]",
            problem=f"{way!r} is not a mode of network configuration",
            fix="use static, dhcp or none",
        )
    asks = way == "dhcp"
    if asks and not any(link.kind is LinkKind.DIRECT and _is_v4(link) for link in links):
        raise InvalidPod(
            field=f"metadata.annotations[{NETWORK_CONFIG}]",
            problem="the pod network gives no IPv4 address, which DHCP needs",
            fix="use static",
        )
    return _yaml({"version": 2, "ethernets": {link.name: _ethernet(link, asks=asks) for link in links}})


def _ethernet(link: GuestLink, *, asks: bool) -> dict[str, Any]:
    """Return the network configuration of one link.

    `asks`: the IPv4 address of the pod network comes from DHCP; all else is static.
    """
    data: dict[str, Any] = {"match": {"macaddress": link.mac}, "set-name": link.name}
    if link.mtu:
        data["mtu"] = link.mtu
    asks = asks and link.kind is LinkKind.DIRECT
    data |= {"dhcp4": asks or link.dhcp, "dhcp6": link.dhcp and link.ipv6}
    addresses = [address for address in link.addresses if not asks or ":" in address]
    if addresses:
        data["addresses"] = addresses
    routes = [route for route in link.routes if not asks or ":" in route.destination]
    if routes:
        data["routes"] = [_route(route.destination, route.gateway, link) for route in routes]
    if link.dns is not None and (link.dns.servers or link.dns.searches):
        data["nameservers"] = {"addresses": list(link.dns.servers), "search": list(link.dns.searches)}
    return data


def _is_v4(link: GuestLink) -> bool:
    return any(":" not in address for address in link.addresses)


def _route(destination: str, gateway: str, link: GuestLink) -> dict[str, Any]:
    """Return one route. A gateway outside the link's own subnets (for a /32 address) is marked as on-link."""
    if not gateway:
        return {"to": destination, "scope": "link"}
    route: dict[str, Any] = {"to": destination, "via": gateway}
    subnets = [ipaddress.ip_interface(address).network for address in link.addresses]
    if not any(ipaddress.ip_address(gateway) in subnet for subnet in subnets):
        route["on-link"] = True
    return route


def _yaml(data: dict[str, Any]) -> bytes:
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=False, width=1000).encode()
