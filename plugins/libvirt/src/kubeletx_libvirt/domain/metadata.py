"""Identity of a domain: an XML element in its metadata from which the plugin recovers the pod. Pure."""

from __future__ import annotations

import json
import uuid
from xml.etree import ElementTree

import msgspec

from kubeletx.api import PodUid, SandboxId, SandboxSpec, UnitId, UnitSpec, names

NAMESPACE = "https://kubeletx.io/xmlns/libvirt/1"
PREFIX = "kubeletx"
_UUIDS = uuid.UUID("6c1a8a34-6b33-4b0e-8c5e-0b7c6a5f6d2e")


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Owner (agent and runtime), pod and unit of a domain, as stored in the domain's metadata."""

    agent_id: str
    runtime: str
    sandbox_id: SandboxId
    uid: PodUid
    namespace: str
    pod: str
    sandbox_attempt: int
    unit: str
    attempt: int
    image: str
    image_ref: str
    created_at_ns: int
    spec_hash: str = ""
    log_path: str = ""
    handler: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    sandbox_labels: dict[str, str] = {}
    sandbox_annotations: dict[str, str] = {}
    log_directory: str = ""


def domain_uuid(agent_id: str, runtime: str, sandbox_id: SandboxId, unit: str, attempt: int) -> UnitId:
    """Return the UUID for the domain of a unit; always the same for the same arguments."""
    return UnitId(str(uuid.uuid5(_UUIDS, "\0".join((agent_id, runtime, sandbox_id, unit, str(attempt))))))


def domain_name(unit_id: UnitId) -> str:
    """Return the domain's name.

    It is short, since libvirt puts it into socket paths; the title has the pod's name.
    """
    return f"kx-{unit_id[:8]}"


def identity_of(
    sandbox: SandboxSpec, unit: UnitSpec, *, agent_id: str, runtime: str, sandbox_id: SandboxId, now_ns: int
) -> Identity:
    """Build the identity of a new domain. `now_ns`: the time of its creation."""
    return Identity(
        agent_id=agent_id,
        runtime=runtime,
        sandbox_id=sandbox_id,
        uid=sandbox.uid,
        namespace=sandbox.namespace,
        pod=sandbox.name,
        sandbox_attempt=sandbox.attempt,
        unit=unit.name,
        attempt=unit.attempt,
        image=unit.image.requested,
        image_ref=unit.image.ref,
        created_at_ns=now_ns,
        spec_hash=sandbox.annotations.get(names.POD_SPEC_HASH, ""),
        log_path=f"{sandbox.log_directory}/{unit.log_path}" if unit.log_path else "",
        handler=sandbox.handler,
        labels=unit.labels,
        annotations=unit.annotations,
        sandbox_labels=sandbox.labels,
        sandbox_annotations=sandbox.annotations,
        log_directory=sandbox.log_directory,
    )


def sandbox_of(identity: Identity) -> SandboxSpec:
    """Rebuild a sandbox spec from a domain's metadata.

    It has what is needed to list, stop and remove the pod, but not everything that the original had.
    """
    return SandboxSpec(
        uid=identity.uid,
        name=identity.pod,
        namespace=identity.namespace,
        attempt=identity.sandbox_attempt,
        handler=identity.handler,
        labels=identity.sandbox_labels,
        annotations=identity.sandbox_annotations,
        log_directory=identity.log_directory,
    )


def metadata_element(identity: Identity) -> str:
    """Return the identity as an XML element. Its text is JSON, so that any character of a label is preserved."""
    ElementTree.register_namespace(PREFIX, NAMESPACE)
    element = ElementTree.Element(f"{{{NAMESPACE}}}unit")
    # ASCII only: XML cannot hold every control character, JSON's escapes can.
    element.text = json.dumps(msgspec.to_builtins(identity), ensure_ascii=True, separators=(",", ":"))
    return ElementTree.tostring(element, encoding="unicode")


def read_metadata(text: str) -> Identity | None:
    """Parse the metadata element that libvirt returns; None if it cannot be decoded."""
    try:
        element = ElementTree.fromstring(text)
        return msgspec.json.decode((element.text or "").encode(), type=Identity)
    except (ElementTree.ParseError, msgspec.MsgspecError, RecursionError):
        return None
