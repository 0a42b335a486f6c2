"""Messages of a core that break the protocol are refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletx.fornax import wire
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb

NODE = "ns/node"


def message(kind: int, node: str = NODE, **body: Any) -> bytes:
    identifier = pb.NodeIdentifier(identifier=node)
    return pb.FornaxCoreMessage(nodeIdentifier=identifier, messageType=kind, **body).SerializeToString()  # type: ignore[arg-type] # also unknown values


def terminate(pod_id: str = "apps/web") -> dict[str, Any]:
    return {"podTerminate": pb.PodTerminate(podIdentifier=pod_id)}


BAD = {
    b"\xff\xff\xff": "3 bytes are not a FornaxCoreMessage",
    message(pb.POD_TERMINATE, "ns/other", **terminate()): "is for node 'ns/other'",
    message(pb.POD_TERMINATE, "", **terminate()): "is for node ''",
    message(999, **terminate()): "message type 999 is unknown",
    message(pb.UNSPECIFIED, **terminate()): "message type 0 is unknown",
    message(pb.NODE_REGISTER, nodeRegistry=pb.NodeRegistry()): "nodeRegistry is sent by nodes only",
    message(pb.POD_TERMINATE): "has no body, not podTerminate",
    message(pb.POD_HIBERNATE, **terminate()): "has podTerminate, not podHibernate",
    message(pb.POD_TERMINATE, **terminate("web")): "podTerminate.podIdentifier: 'web' is not namespace/name",
    message(pb.POD_TERMINATE, **terminate("a/b/c")): "'a/b/c' is not namespace/name",
    message(pb.POD_TERMINATE, **terminate("a/" + "b" * 254)): "bbb' is not namespace/name",
    message(pb.POD_CREATE, podCreate=pb.PodCreate(podIdentifier="apps/web")): "podCreate.pod is missing",
    message(
        pb.SESSION_OPEN, sessionOpen=pb.SessionOpen(sessionIdentifier="a/s", podIdentifier="a/p")
    ): "sessionOpen.session is missing",
}


@pytest.mark.parametrize("data", BAD)
def test_a_message_that_breaks_the_protocol_is_refused(data: bytes) -> None:
    with pytest.raises(wire.InvalidMessage) as caught:
        wire.parse(data, NODE)
    assert BAD[data] in str(caught.value)


def test_a_command_is_parsed() -> None:
    found = wire.parse(message(pb.POD_TERMINATE, **terminate()), NODE)
    assert found.podTerminate.podIdentifier == "apps/web"
    assert wire.PUT_MESSAGE == "/centaurusinfra.io.fornaxcore.service.FornaxCoreService/putMessage"


@pytest.mark.parametrize("parts", [{"node": "x" * 10**6}, terminate("x" * 10**6)])
def test_a_huge_text_of_a_core_is_not_repeated_in_the_error(parts: dict[str, Any]) -> None:
    data = message(pb.POD_TERMINATE, **{**terminate(), **parts})
    with pytest.raises(wire.InvalidMessage, match=r"xxx\.\.\. \(1000002 characters\)") as caught:
        wire.parse(data, NODE)
    assert len(str(caught.value)) < 1200
