"""JSON from tenants, clients, programs and servers that is nested too deep is an error like any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeletx.api import Internal, InvalidPod, KubeletxError, Unavailable, names
from kubeletx.apiserver.node.claim import identity_in
from kubeletx.kube.client.errors import parse_status
from kubeletx.kube.client.requests import decode
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.lease import Lease
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.validation import validate_own
from kubeletx.runtimes.cni.config import load_config
from kubeletx.runtimes.images.credentials import pull_secret_auths
from kubeletx.runtimes.isolation.codec import MSGPACK
from kubeletx.streaming.channels import decode_resize
from kubeletx.streaming.status import exit_code_of, refusal_of

ARRAYS = "[" * 100_000
DEEP = f'{{"a": {ARRAYS}'  # in a field that no reader has
DATA = DEEP.encode()


def noted(key: str, text: str) -> Pod:
    return Pod(metadata=ObjectMeta(name="p", annotations={names.WORKLOAD_TYPE: "vm", key: text}))


@pytest.mark.parametrize("key", [names.VM_META_DATA, names.VM_NICS])
def test_annotations_of_pods(key: str) -> None:
    for text in (DEEP, ARRAYS):
        found = validate_own(noted(key, text), "file")
        assert any(key in str(one) for one in found), found


def test_meta_data_that_can_be_read_but_hardly_written() -> None:
    def deep(levels: int) -> tuple[InvalidPod, ...]:
        text = '{"a":' * levels + "1" + "}" * levels
        return tuple(
            one for one in validate_own(noted(names.VM_META_DATA, text), "file") if "too deep" in str(one)
        )

    assert not deep(100)
    assert deep(101)
    assert deep(300)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: pull_secret_auths(DATA, "a"), ValueError),
        (lambda: decode(DATA, Pod, "pods"), Unavailable),
        (lambda: decode(f'{{"metadata": {ARRAYS}'.encode(), Pod, "pods"), Unavailable),
        (lambda: exit_code_of(DATA), Internal),
        (lambda: MSGPACK.decode(msgspec.Raw(b"\x91" * 100_000), Any), Internal),
    ],
)
def test_answers_and_secrets(call: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


def test_a_network_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.conflist").write_bytes(DATA)
    with pytest.raises(KubeletxError, match="too deep"):
        load_config(tmp_path)


def test_what_counts_as_absent() -> None:
    assert decode_resize(DATA) is None
    assert parse_status(DATA).message
    assert DEEP.startswith(refusal_of(DATA)[:40])
    lease = Lease(metadata=ObjectMeta(name="n", annotations={names.AGENT_IDENTITY: DEEP}))
    assert identity_in(lease) is None
