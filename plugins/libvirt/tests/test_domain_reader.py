"""What looks tell of machines, whatever happens beside them, on libvirt's own test driver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import libvirt
import msgspec
import pytest
import pytest_asyncio
from kubeletx_libvirt.client import Connection, DomainEvent
from kubeletx_libvirt.domain.metadata import Identity, domain_name, metadata_element
from kubeletx_libvirt.domain_reader import DomainReader
from kubeletx_libvirt.records import Records, Run
from kubeletx_libvirt.units import destroy_domain

from kubeletx.api import PodUid, SandboxId, UnitId, UnitState, UnitStatus, names
from kubeletx.testing import FakeClock, FakeHost

UNIT = UnitId("00000000-0000-0000-0000-000000000009")
BEGUN = Run(is_starting=True, since_ns=5, restarts=2)


class WatchedConnection(Connection):
    """A connection that calls `after` when an answer has come."""

    after: Callable[[], None] | None = None

    async def use(self, *args: Any) -> Any:  # type: ignore[override]  # it passes all on
        answer = await super().use(*args)
        if self.after is not None:
            self.after()
        return answer


class Machine:
    """One domain of ours, and what is written down about it."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host
        self.connection = WatchedConnection("test:///default", host)
        self.records = Records(host)
        self.domains = DomainReader(self.connection, self.records, host, "libvirt-test")
        self.identity = Identity(
            agent_id=host.agent_id,
            runtime="libvirt-test",
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

    async def open(self) -> None:
        """Connect and define it."""
        await self.connection.open()
        await self.records.load()
        await self.connection.use(
            libvirt.virConnect.defineXML,
            f"<domain type='test'><name>{domain_name(UNIT)}</name><uuid>{UNIT}</uuid><memory>1024</memory>"
            f"<metadata>{metadata_element(self.identity)}</metadata><os><type>hvm</type></os></domain>",
        )

    async def boot(self) -> None:
        """As a call does whose caller is gone: nothing is written down."""
        await self.connection.use(lambda handle: handle.lookupByUUIDString(UNIT).create())

    async def look(self) -> UnitStatus:
        """At a state of which nothing is remembered."""
        return await self.domains.status(UNIT)


@pytest_asyncio.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(FakeHost(tmp_path))
    await machine.open()
    yield machine
    await machine.connection.use(destroy_domain, UNIT)
    await machine.connection.use(lambda handle: handle.lookupByUUIDString(UNIT).undefine())
    await machine.connection.close()


async def test_a_machine_that_is_on_was_started_when_its_start_began(machine: Machine) -> None:
    await machine.records.save_run(UNIT, BEGUN)
    await machine.boot()
    status = await machine.look()
    assert (status.summary.state, status.started_at_ns, status.restarts) == (UnitState.RUNNING, 5, 2)
    again = Records(machine.host)
    await again.load()
    assert again.run_of(UNIT) == msgspec.structs.replace(BEGUN, is_starting=False, started_at_ns=5)


async def test_a_start_that_is_under_way_here_is_not_confirmed_by_a_look(machine: Machine) -> None:
    await machine.records.save_run(UNIT, BEGUN)
    await machine.boot()
    machine.domains.starting.add(UNIT)
    await machine.look()
    assert machine.records.run_of(UNIT) == BEGUN


@pytest.mark.parametrize("old", [Run(), Run(started_at_ns=1, finished_at_ns=2, exit_code=1, restarts=2)])
async def test_the_answer_to_a_start_may_be_lost(machine: Machine, old: Run) -> None:
    await machine.records.save_run(UNIT, BEGUN)
    await machine.boot()
    await machine.records.save_run(UNIT, old)
    await machine.look()
    await machine.connection.use(lambda handle: handle.lookupByUUIDString(UNIT).shutdown())
    status = await machine.look()
    assert (status.summary.state, status.exit_code) == (UnitState.EXITED, 0)
    assert (status.started_at_ns > 2, status.restarts) == (True, old.restarts)


async def test_a_look_that_began_before_the_end_of_a_machine_does_not_erase_it(machine: Machine) -> None:
    await machine.records.save_run(UNIT, BEGUN)
    await machine.boot()
    earlier = await machine.domains.get(UNIT)
    await machine.connection.use(destroy_domain, UNIT)
    await machine.look()
    assert (await machine.domains.confirm(UNIT, earlier)).exit_code == 137


async def test_once_seen_running_its_end_is_an_end_and_not_a_start_that_was_cut_off(machine: Machine) -> None:
    await machine.records.save_run(UNIT, BEGUN)
    await machine.boot()
    await machine.look()
    await machine.connection.use(destroy_domain, UNIT)
    status = await machine.look()
    assert (status.summary.state, status.exit_code, status.started_at_ns) == (UnitState.EXITED, 137, 5)


async def test_one_that_is_off_after_its_start_was_broken_off_never_ran(machine: Machine) -> None:
    await machine.records.save_run(UNIT, BEGUN)
    status = await machine.look()
    assert (status.summary.state, status.reason) == (UnitState.EXITED, names.START_CUT_OFF)
    assert (status.exit_code, status.started_at_ns) == (None, 0)


async def test_a_look_that_began_before_a_machine_was_defined_does_not_forget_it(
    machine: Machine,
) -> None:
    new = UnitId("00000000-0000-0000-0000-00000000000a")
    machine.connection.after = lambda: machine.domains.learn(new, machine.identity)
    for look in (machine.domains.all(), machine.domains.find(new)):
        await look
        assert machine.domains.identity(new) == machine.identity
        machine.domains.forget(new)


async def test_an_unknown_end_is_corrected_by_a_call_that_knows_it(machine: Machine) -> None:
    await machine.records.save_run(UNIT, msgspec.structs.replace(BEGUN, is_starting=False, started_at_ns=5))
    domain = await machine.domains.get(UNIT)
    shutoff = libvirt.VIR_DOMAIN_SHUTOFF
    for reason, code in (
        (libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN, 255),
        (libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED, 137),
        (libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN, 137),
        (libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN, 137),
    ):
        ended = domain._replace(state=shutoff, reason=reason)
        assert (await machine.domains.settle(UNIT, ended)).exit_code == code


@pytest.mark.parametrize(
    ("seconds", "cpu_seconds", "restarts"),
    [
        pytest.param(1, 3, 1, id="the firmware resets once more"),
        pytest.param(20, 0.1, 1, id="the same on a busy node"),
        pytest.param(20, 3, 2, id="the guest reboots again"),
        pytest.param(100, 0.1, 2, id="a guest that did little reboots again"),
    ],
)
async def test_all_resets_of_one_reboot_count_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, seconds: float, cpu_seconds: float, restarts: int
) -> None:
    clock, used = FakeClock(), [7.0]
    machine.host.clock = clock
    monkeypatch.setattr(libvirt.virDomain, "info", lambda _: [1, 1024, 1024, 1, int(used[0] * 1e9)])
    await machine.domains.all()
    await machine.domains.note(DomainEvent(UNIT, "reboot"))
    used[0] += cpu_seconds
    clock.advance(seconds)
    await machine.domains.note(DomainEvent(UNIT, "reboot"))
    assert machine.records.run_of(UNIT).restarts == restarts
