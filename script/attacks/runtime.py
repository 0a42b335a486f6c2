"""Attack: a runtime that lies, fails, hangs or floods, beside a sound runtime with the witness pod.

Each round uses one behaviour for some seconds while pods are added to the hostile runtime. After the last round the
runtime is sound again and all its pods must run; then they are deleted, and nothing may be left on it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from kubeletx.cri.stubs import runtime_v1_pb2 as pb
from kubeletx_testing.cri_model import CriModel, Refusal

from .mutators import TEXTS
from .servers import HOSTILE, Servers, seeded, until
from .target import Broken, Target, target

PODS = 5
SECONDS = 4.0
"""How long a round's behaviour lasts."""
CALLS_PER_SECOND = 15.0
"""Maximum of calls for each pod without progress, on average over a round; some are regular reads by the agent."""
LIMITED = ("fails", "does_nothing")
"""Behaviours to which `CALLS_PER_SECOND` applies; the figures of the others are only reported."""
HEAL_SECONDS = 330.0
"""Time limit for pods to run again: the longest back-off is 300 s."""

_INTEGERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
_READS = ("Version", "Status", "RuntimeConfig")


class Hostile:
    """One hostile behaviour (`kind`), with random choices from `rng`. Implements `Behaviour`."""

    def __init__(self, rng: random.Random, kind: str) -> None:
        self.kind = kind
        self._rng = rng
        self._act: Callable[[str, Message, CriModel], Any] = getattr(self, f"_{kind}")

    async def answer(self, method: str, request: Message, model: CriModel) -> Message | bytes:
        """Answer one call in the way of this behaviour; see `Behaviour.answer`."""
        result = self._act(method, request, model)
        answer: Message | bytes = await result if asyncio.iscoroutine(result) else result
        return answer

    def events(self, model: CriModel) -> list[pb.ContainerEventResponse]:
        """Events of every container, five times each, if the behaviour is ``floods``; else none."""
        if self.kind != "floods":
            return []
        types = pb.ContainerEventType.keys()
        return [
            pb.ContainerEventResponse(
                container_id=self._rng.choice((container.id, "", "unknown", "a\x00b")),
                container_event_type=self._rng.choice(types),
                pod_sandbox_status=model.sandboxes.get(model.sandbox_of.get(container.id, "")),
                containers_statuses=[container],
            )
            for container in list(model.containers.values()) * 5
        ]

    def _floods(self, method: str, request: Message, model: CriModel) -> Message:
        return model.answer(method, request)

    def _fails(self, method: str, request: Message, model: CriModel) -> Message:
        """Fail most calls with a random gRPC status and text."""
        if method in _READS or self._rng.random() < 0.2:
            return model.answer(method, request)
        codes = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
        raise Refusal(self._rng.choice(codes), self._text()[:4000])

    def _does_nothing(self, method: str, request: Message, model: CriModel) -> Message:
        """Answer every changing call with success, but change nothing."""
        answers: dict[str, Message] = {
            "RunPodSandbox": pb.RunPodSandboxResponse(pod_sandbox_id=f"nothing-{self._rng.randrange(10**6)}"),
            "CreateContainer": pb.CreateContainerResponse(
                container_id=f"nothing-{self._rng.randrange(10**6)}"
            ),
            "StartContainer": pb.StartContainerResponse(),
            "StopContainer": pb.StopContainerResponse(),
            "RemoveContainer": pb.RemoveContainerResponse(),
            "StopPodSandbox": pb.StopPodSandboxResponse(),
            "RemovePodSandbox": pb.RemovePodSandboxResponse(),
        }
        return answers.get(method) or model.answer(method, request)

    def _forgets(self, method: str, request: Message, model: CriModel) -> Message:
        """Answer with empty lists and NotFound, although all objects exist."""
        answer = model.answer(method, request)
        if method.startswith("List"):
            return type(answer)()
        if method.endswith("Status") and method not in _READS and method != "ImageStatus":
            raise Refusal(grpc.StatusCode.NOT_FOUND, "not found")
        return answer

    def _lies(self, method: str, request: Message, model: CriModel) -> Message:
        """Answer with up to three random fields changed: ids, times, states, labels, texts, numbers."""
        answer = type(made := model.answer(method, request))()
        answer.CopyFrom(made)
        for _ in range(self._rng.randint(0, 3)):
            self._change(answer)
        return answer

    def _exaggerates(self, method: str, request: Message, model: CriModel) -> Message:
        """Answer with long lists of objects that were not requested."""
        answer = type(made := model.answer(method, request))()
        answer.CopyFrom(made)
        if isinstance(answer, pb.ListContainersResponse):
            answer.containers.extend(pb.Container(id=f"c{n}", pod_sandbox_id="p") for n in range(5000))
        elif isinstance(answer, pb.ListPodSandboxResponse):
            answer.items.extend(pb.PodSandbox(id=f"p{n}") for n in range(5000))
        elif isinstance(answer, pb.ListImagesResponse):
            answer.images.extend(pb.Image(id=f"i{n}", repo_tags=["x:y"] * 5) for n in range(5000))
        return answer

    def _garbles(self, method: str, request: Message, model: CriModel) -> Message | bytes:
        """Answer with damaged bytes, in about half of the calls."""
        data = bytearray(model.answer(method, request).SerializeToString())
        if method in _READS or self._rng.random() < 0.5:
            return bytes(data)
        if data:
            data[self._rng.randrange(len(data))] = self._rng.randrange(256)
        return bytes(data) + self._rng.randbytes(self._rng.randint(0, 20))

    async def _hangs(self, method: str, request: Message, model: CriModel) -> Message:
        """Answer late or, within the round, never; sometimes after the call was carried out."""
        if self._rng.random() < 0.5:
            await asyncio.sleep(self._rng.choice((0.5, 3.0, 3600.0)))
        answer = model.answer(method, request)
        if self._rng.random() < 0.2:
            await asyncio.sleep(3600)
        return answer

    def _text(self) -> str:
        return self._rng.choice(TEXTS).replace("\ud800", "?")

    def _change(self, message: Message) -> None:
        """Change one random field of the message or of a message inside it."""
        fields = [
            field for field in message.DESCRIPTOR.fields if not field.message_type or _is_set(message, field)
        ]
        if not fields:
            return
        field = self._rng.choice(fields)
        if field.message_type and field.message_type.GetOptions().map_entry:
            return
        value = getattr(message, field.name)
        if field.is_repeated:
            if field.message_type and value and self._rng.random() < 0.6:
                self._change(self._rng.choice(value))
            elif value and field.message_type:
                value.add().CopyFrom(self._rng.choice(value))
            else:
                del value[:]
        elif field.message_type:
            self._change(value)
        elif field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, self._text())
        elif field.enum_type is not None:
            setattr(message, field.name, self._rng.choice(sorted(field.enum_type.values_by_number)))
        elif field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_INT32):
            small = field.cpp_type == FieldDescriptor.CPPTYPE_INT32
            choices = [number for number in _INTEGERS if not small or abs(number) <= 2**31 - 1]
            setattr(message, field.name, self._rng.choice(choices))
        elif field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            setattr(message, field.name, self._rng.random() < 0.5)


KINDS = ("fails", "does_nothing", "forgets", "lies", "exaggerates", "garbles", "floods", "hangs")


def runtime(rounds: int, seed: int) -> str:
    """Use one behaviour in each round, in turn; then heal the runtime and delete its pods.

    Returns what was tried.
    """
    most: dict[str, float] = {}
    with target() as node:
        for number in range(rounds):
            kind = KINDS[number % len(KINDS)]
            rate = _round(node, seeded(seed, "runtime", number), kind, number)
            most[kind] = max(rate, most.get(kind, 0.0))
        _heal(node, rounds)
        _clear(node, rounds)
        peak = node.peak_bytes() >> 20
    rates = ", ".join(f"{kind} {rate:.1f}" for kind, rate in most.items())
    return f"{rounds} rounds, calls per second and pod: {rates}; peak {peak} MiB"


def _round(node: Target, rng: random.Random, kind: str, number: int) -> float:
    """Use one behaviour for some seconds; returns the calls per second for each pod on the hostile runtime.

    Raises Broken if the agent or the witness fails, or if a behaviour in `LIMITED` causes too many calls.
    """
    for index in range(PODS):
        node.put(f"r{number}-{index}", HOSTILE)
    if rng.random() < 0.5:
        until(lambda: _running(node.servers, number) == PODS, seconds=10)
    _set(node.servers, Hostile(rng, kind))
    before, began = node.servers.hostile.counts.total(), time.monotonic()
    while time.monotonic() - began < SECONDS:
        node.check()
        time.sleep(0.2)
    seconds = time.monotonic() - began
    rate = (node.servers.hostile.counts.total() - before) / seconds / (PODS * (number + 1))
    _set(node.servers, None)
    if kind in LIMITED and rate > CALLS_PER_SECOND:
        raise Broken(f"a runtime that {kind} got {rate:.0f} calls per second for each pod")
    return rate


def _set(servers: Servers, behaviour: Hostile | None) -> None:
    def change() -> None:
        servers.hostile.behaviour = behaviour

    servers.look(change)


def _running(servers: Servers, number: int) -> int:
    model = servers.hostile.model
    return servers.look(
        lambda: sum(
            container.state == pb.CONTAINER_RUNNING and f"r{number}-" in container.log_path
            for container in model.containers.values()
        )
    )


def _heal(node: Target, rounds: int) -> None:
    names = {f"r{number}-{index}" for number in range(rounds) for index in range(PODS)}
    node.wait_pods(names, seconds=HEAL_SECONDS)
    node.check()


def _clear(node: Target, rounds: int) -> None:
    """Delete all pods of the hostile runtime. Raises Broken if sandboxes or containers are left on it."""
    for number in range(rounds):
        for index in range(PODS):
            (node.manifests / f"r{number}-{index}.json").unlink()
    node.wait_pods(set())
    model = node.servers.hostile.model
    left = until(lambda: node.servers.look(lambda: not model.sandboxes and not model.containers), seconds=30)
    if not left:
        raise Broken(f"left on the hostile runtime: {sorted(model.sandboxes)} {sorted(model.containers)}")


def _is_set(message: Message, field: Any) -> bool:
    return bool(getattr(message, field.name)) if field.is_repeated else message.HasField(field.name)
