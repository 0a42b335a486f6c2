"""Identity in a domain's metadata survives every character."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_libvirt.domain.metadata import (
    Identity,
    domain_name,
    domain_uuid,
    identity_of,
    metadata_element,
    read_metadata,
    sandbox_of,
)

from kubeletx.api import PodUid, SandboxId
from kubeletx.testing import sandbox_spec, unit_spec

PLAIN = Identity(
    agent_id="agent",
    runtime="libvirt-qemu",
    sandbox_id=SandboxId("s-0"),
    uid=PodUid("u"),
    namespace="default",
    pod="vm",
    sandbox_attempt=0,
    unit="main",
    attempt=0,
    image="image",
    image_ref="sha256:1",
    created_at_ns=1,
)
TEXT = st.text(st.characters(blacklist_categories=("Cs",)))


@given(st.dictionaries(TEXT, TEXT))
def test_labels_and_annotations_come_back_whatever_they_hold(words: dict[str, str]) -> None:
    identity = msgspec.structs.replace(PLAIN, labels=words, annotations=words)
    assert read_metadata(metadata_element(identity)) == identity


def test_what_is_not_ours_has_no_identity() -> None:
    assert read_metadata("<other/>") is None
    assert read_metadata("no xml") is None


def test_a_key_is_always_the_same_domain_and_another_key_another() -> None:
    key = ("agent", "runtime", SandboxId("s-0"), "main", 0)
    assert domain_uuid(*key) == domain_uuid(*key)
    others = {
        domain_uuid("other", *key[1:]),
        domain_uuid(key[0], "other", *key[2:]),
        domain_uuid(*key[:2], SandboxId("s-1"), *key[3:]),
        domain_uuid(*key[:3], "other", key[4]),
        domain_uuid(*key[:4], 1),
    }
    assert len(others | {domain_uuid(*key)}) == 6


def test_names_are_short_since_sockets_carry_them() -> None:
    assert len(domain_name(domain_uuid("a", "r", SandboxId("s"), "u", 0))) == 11


def test_a_domain_remembers_enough_of_its_pod_to_stop_and_remove_it() -> None:
    sandbox = sandbox_spec("vm", attempt=2, annotations={"a": "b"}, log_directory="/logs")
    key = {"agent_id": "a", "runtime": "r", "sandbox_id": SandboxId("s-2"), "now_ns": 1}
    identity = identity_of(sandbox, unit_spec(log_path="main.log"), **key)  # type: ignore[arg-type]
    assert sandbox_of(identity) == sandbox
    assert identity.log_path == "/logs/main.log"
