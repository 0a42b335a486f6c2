"""Short ways to write down what a runtime shows and a worker knows, for tests of the status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kubeletx.api import (
    PodUid,
    RuntimeName,
    SandboxId,
    SandboxState,
    SandboxStatus,
    SandboxSummary,
    UnitId,
    UnitState,
    UnitStatus,
    UnitSummary,
)
from kubeletx.kube.types.core import (
    Container,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
)
from kubeletx.pods.model.facts import DesiredPod, Now, PodFacts
from kubeletx.pods.status.build import NodeIdentity, build_status
from kubeletx.runtimes.handles.snapshots import PodSnapshot

START = datetime(2030, 1, 1, tzinfo=UTC)
FAKE = RuntimeName("fake")
UID = PodUid("u1")
NODE = NodeIdentity(name="n", host_ips=("192.0.2.1",), backends={FAKE: "fakerun"})


def at(mono: float) -> Now:
    """The moment `mono` seconds after the start, on both clocks."""
    return Now(wall=START + timedelta(seconds=mono), mono=mono)


def ns(mono: float) -> int:
    """The same moment as runtimes report it."""
    return int(START.timestamp() + mono) * 1_000_000_000


def pod(
    *containers: Container | str,
    init: tuple[Container, ...] = (),
    policy: str = "Always",
    source: str = "file",
    status: PodStatus | None = None,
    **spec: object,
) -> DesiredPod:
    """A desired pod p in namespace default."""
    made = tuple(Container(name=c, image="img") if isinstance(c, str) else c for c in containers)
    return DesiredPod(
        uid=UID,
        pod=Pod(
            metadata=ObjectMeta(name="p", namespace="default", uid=UID, generation=3),
            spec=PodSpec(containers=made, init_containers=init, restart_policy=policy, **spec),  # type: ignore[arg-type]
            status=status or PodStatus(),
        ),
        source=source,
        spec_hash="h",
    )


def unit(
    name: str,
    state: UnitState = UnitState.RUNNING,
    *,
    attempt: int = 0,
    code: int | None = None,
    reason: str = "",
    message: str = "",
    sandbox: str = "s0",
) -> UnitStatus:
    """One unit; its id is ``name-attempt``."""
    ended = state is UnitState.EXITED
    return UnitStatus(
        summary=UnitSummary(
            id=UnitId(f"{name}-{attempt}"),
            sandbox_id=SandboxId(sandbox),
            uid=UID,
            name=name,
            attempt=attempt,
            state=state,
            created_at_ns=ns(attempt),
            image="docker.io/img",
            image_id="sha256:1",
        ),
        started_at_ns=ns(attempt + 1) if state is not UnitState.CREATED else 0,
        finished_at_ns=ns(attempt + 2) if ended else 0,
        exit_code=code if code is not None or not ended else 0,
        reason=reason,
        message=message,
    )


def exited(name: str, code: int = 0, *, attempt: int = 0, **more: str) -> UnitStatus:
    """An ended unit."""
    return unit(name, UnitState.EXITED, code=code, attempt=attempt, **more)  # type: ignore[arg-type]


def snapshot(
    *units: UnitStatus, sandbox: bool | None = True, ips: tuple[str, ...] = ("10.0.0.1",)
) -> PodSnapshot:
    """What one look showed. `sandbox`: ready, stopped, or None for none at all."""
    summaries: tuple[SandboxSummary, ...] = ()
    if sandbox is not None:
        state = SandboxState.READY if sandbox else SandboxState.NOT_READY
        summaries = (
            SandboxSummary(
                id=SandboxId("s0"),
                uid=UID,
                name="p",
                namespace="default",
                attempt=0,
                state=state,
                created_at_ns=ns(0),
            ),
        )
    newest_first = sorted(units, key=lambda u: -u.summary.attempt)
    return PodSnapshot(
        uid=UID,
        sandboxes=summaries,
        units=tuple(u.summary for u in newest_first),
        sandbox_status=SandboxStatus(summary=summaries[0], ips=ips if sandbox else ()) if summaries else None,
        statuses={u.summary.id: u for u in newest_first},
        looked_at=1.0,
    )


def facts(*units: UnitStatus, sandbox: bool | None = True, **fields: object) -> PodFacts:
    """Facts of a bound pod with these units."""
    base: dict[str, object] = {
        "runtime": FAKE,
        "runtime_ready": True,
        "network_ready": True,
        "admitted": True,
        "started_at": START,
        "snapshot": snapshot(*units, sandbox=sandbox),
    }
    return PodFacts(**{**base, **fields})  # type: ignore[arg-type]


def status_of(desired: DesiredPod, known: PodFacts, mono: float = 100.0) -> PodStatus:
    """The status at this moment."""
    return build_status(desired, known, at(mono), NODE)


def container(status: PodStatus, name: str) -> ContainerStatus:
    """The one status of this container."""
    found = [
        s
        for s in (
            *status.init_container_statuses,
            *status.container_statuses,
            *status.ephemeral_container_statuses,
        )
        if s.name == name
    ]
    assert len(found) == 1
    return found[0]


def condition(status: PodStatus, type: str) -> PodCondition:
    """The one condition of this type."""
    found = [c for c in status.conditions if c.type == type]
    assert len(found) == 1, [c.type for c in status.conditions]
    return found[0]
