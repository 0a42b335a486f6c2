"""The guardian: once a tick it reads, decides with pure functions, stores, and acts.

    topics, slots, orders, checks ─► validate, operations ─► state files ─► slots, machine, topics

What is decided is stored before it is done, and done again until it shows: a guardian that is killed anywhere goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from . import drain, maintenance
from .checks.base import LookFacts
from .checks.runner import CheckRunner
from .checks.sources import ContactSources
from .config import HealthSettings
from .contact import merge as merge_contact
from .devices.leds import Leds
from .forecast import Situation
from .inbox import Inbox
from .machine import MachineEffects, UnitRestarts
from .maintenance import Maintenance, MaintenanceReason
from .model import (
    Begin,
    CheckState,
    Effect,
    RecordEvent,
    RestartUnit,
    SetSlot,
    SlotState,
    SlotTable,
    WithdrawUpdate,
)
from .operations import resume
from .orders import (
    FailedImage,
    SlotWrite,
)
from .outbox import Orders
from .reasons import BootRecord, ReasonFiles, deduce
from .requests.ending import BootEnding
from .requests.guardian_state import GuardianState
from .requests.processing import RequestProcessor
from .slots import Slots, SlotsError, SlotsPending
from .state import BOOTED, UPGRADE_FAILED, NodeHistory
from .statuses import health_status, node_agent_status, zboot_config, zboot_status
from .topics import (
    HEALTH_STATUS,
    NODE_AGENT,
    NODE_AGENT_STATUS,
    ZBOOT_CONFIG,
    ZBOOT_STATUS,
    NodeAgentStatus,
    Publisher,
)
from .validation import ControllerMark, Facts, Phase, validate, vault_is_locked
from .watchdog.agents import AgentWatch

OWN: Final = "kubeletx-health"
"""Name of the guardian's own directory below RUN and PERSIST."""


class Guardian:
    """State of one process. `tick` is called once a tick, by one thread."""

    def __init__(
        self,
        run: Path,
        persist: Path,
        slots: Slots | None,
        machine: MachineEffects,
        settings: HealthSettings,
        *,
        boot: str,
        report: Callable[[str, str], object],
        report_event: Callable[[str, str], object],
    ) -> None:
        """`slots` None: the node has one OS image. `boot`: identity of this boot.

        `report`: logs what is wrong, which may come again at each tick. `report_event`: logs what has happened. Both get a
        CamelCase reason and a message.
        """
        self._report, self._report_event = report, report_event
        self._history = NodeHistory(persist / OWN / "history", lambda line: report("BadState", line))
        self._slots, self._machine = slots, machine
        self._run_dir = run
        self.inbox = Inbox(run, persist, lambda line: report("BadTopic", line))
        self._publisher = Publisher(run, persist, lambda line: report("CannotPublish", line))
        self.orders = Orders(run / OWN, persist / OWN, lambda line: report("BadOrder", line))
        self._watch = AgentWatch(run, persist / OWN, settings.sections.get("watchdog", {}), report)
        self.check_runner = CheckRunner(settings.sections.get("checks"), report)
        self.contact_sources = ContactSources(run, settings.sections.get("contact"), report)
        self._leds = Leds(settings.sections.get("leds", {}), lambda line: report("BadLed", line))
        self._reasons = ReasonFiles(persist)
        self._state = state = GuardianState(run / OWN, persist / OWN, settings, boot, report)
        self.inbox.ignored = state.run.ignored
        self._slots_problem = ""
        operation, self._owed = resume(state.run.operation, self.now)
        state.update_run(operation=operation)
        self._restarts, self._lost_restarts = UnitRestarts(machine, report), state.run.restarts
        self._ending = BootEnding(state, persist, self.inbox, machine, report, self._record)
        self._requests = RequestProcessor(
            state,
            self.orders,
            self.inbox,
            self._ending,
            has_slots=slots is not None,
            situation=self._situation,
            record=self._record,
        )
        self.checks: tuple[CheckState, ...] = ()
        if state.memory.boot != boot:
            self._note_boot(boot)
        try:  # after the memory, so that a kill in between counts no boot twice
            self._reasons.write_restarts(state.memory.restart_counter + 1)
        except OSError as error:
            report("BadState", f"status/restartcounter cannot be written: {error.strerror}")
        if self._reasons.read() == state.memory.last_boot:
            self._reasons.discard()

    @property
    def now(self) -> int:
        """Second of the current tick."""
        return self._state.run.now

    def tick(self) -> None:
        """Read, decide, store and act once. Raises what `MachineEffects.act` raises, and Exit."""
        state = self._state
        state.update_run(ticks=state.run.ticks + 1)
        self._read_slots()
        self.inbox.read(self.now)
        self.contact_sources.tick(self.now, self.inbox.receive)
        if self.inbox.items != state.controller_items:
            state.apply_settings(self.inbox.items)
        state.update_run(ignored=self.inbox.ignored)
        state.update_memory(commands=self.inbox.commands)
        self._decide_write(self._requests.take_controllers())
        state.store()
        self._write_slot()
        self._take_orders()
        watched, hits = self._watch.tick(state.run.watched, self.now, is_busy=state.is_busy)
        state.update_run(watched=watched)
        changes = self._check()
        effects = [*self._decide(), *hits, *changes]
        # A verdict and the operation that follows from it are stored in one write: neither is found without the other.
        self._act([effect for effect in effects if isinstance(effect, Begin | WithdrawUpdate)])
        self._decide_restarts(effect.unit for effect in effects if isinstance(effect, RestartUnit))
        state.store()
        self._act([effect for effect in effects if not isinstance(effect, Begin | WithdrawUpdate)])
        self._restarts.begin(state.run.restarts)
        deeds = self._ending.advance()
        self._publish()
        state.store()
        owed, self._owed = self._owed, ()
        for deed in (*owed, *deeds):
            self._ending.do(deed)

    def hurry(self) -> None:
        """Take orders between two ticks."""
        self._read_slots()
        self._take_orders()

    # -- reading

    def _read_slots(self) -> None:
        state = self._state
        if self._slots is None:
            return
        try:
            state.table = self._slots.read()
        except SlotsPending:
            return
        except SlotsError as error:
            if str(error) != self._slots_problem:
                self._slots_problem = str(error)
                self._report("SlotsUnreadable", f"{error}; the last known state counts")
            return
        self._slots_problem = ""
        self._note_failure(state.table)
        if state.memory.write is not None and not state.memory.write.is_due(state.table, state.run.boot):
            state.update_memory(write=None)

    def _note_failure(self, table: SlotTable) -> None:
        """Remember which image was tested, and that it has failed if the old one runs again."""
        memory, other = self._state.memory, table.other
        if table.current.state is SlotState.INPROGRESS:
            memory = replace(memory, tested=table.current_label)
        elif other.state is SlotState.INPROGRESS:
            failed, record = memory.failed, self._reasons.after_failed_update(memory.last_boot, table)
            if record is not memory.last_boot:
                self._record(UPGRADE_FAILED, f"{record.boot_reason.text}: {record.reason}", record.image)
            # Noted once: an installer may write the next image, with another version, while the slot has this state.
            if record is not memory.last_boot or memory.tested:
                failed = FailedImage(other.label, other.version, record.reason)
            memory = replace(memory, tested="", failed=failed, last_boot=record)
        elif memory.tested:
            is_committed = memory.tested == table.current_label
            memory = replace(memory, tested="", failed=None if is_committed else memory.failed)
        self._state.memory = memory

    # -- orders

    def _take_orders(self) -> None:
        for order in self.orders.pending():
            reply = self._requests.carry_out(order)
            self._decide_write(reply.effects)
            self._state.store()
            self.orders.answer(order, reply.answer, keeps=reply.keeps)
            self._write_slot()

    def _decide_write(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SetSlot) and self._state.table is not None:
                before = self._state.table.get(effect.label).state
                write = SlotWrite(effect.label, effect.state, before, self._state.run.boot)
                self._state.update_memory(write=write if before is not effect.state else None)

    def _write_slot(self) -> None:
        write = self._state.memory.write
        if write is not None:
            self._act([SetSlot(write.label, write.state)])
            self._read_slots()

    # -- deciding

    def _decide(self) -> Sequence[Effect]:
        state = self._state
        contact = merge_contact(
            state.run.contact, self.inbox.reports, self.now, state.settings.number("contact.fresh.limit")
        )
        facts = Facts(
            now=self.now,
            table=state.table,
            contact=contact,
            checks=self.checks,
            vault=self.inbox.vault,
            mark=state.run.mark,
            is_busy=state.is_busy,
        )
        validation, effects = validate(state.run.validation, facts, state.settings)
        if validation.phase is not Phase.TESTING:
            state.update_run(mark=ControllerMark.NONE)
        state.update_run(validation=validation, contact=contact)
        state.update_memory(commit=validation.commit)
        return effects

    def _check(self) -> Sequence[Effect]:
        facts = LookFacts(
            run=self._run_dir,
            now=self.now,
            watched=self._state.run.watched,
            agent=self.inbox.agent,
            agent_silent=self.now - self.inbox.agent_at,
        )
        records, changes = self.check_runner.tick(self._state.run.checks, facts)
        self.checks = self.check_runner.states(records, facts)
        self._state.update_run(checks=records)
        return changes

    def _maintenance(self) -> Maintenance:
        state = self._state
        reasons = set(self.inbox.reasons)
        if state.memory.asks_maintenance:
            reasons.add(MaintenanceReason.USER_REQUESTED)
        validation = state.run.validation
        if validation.phase is Phase.NORMAL and vault_is_locked(validation, self.now, state.settings):
            reasons.add(MaintenanceReason.VAULT_LOCKED_UP)
        word = state.settings.word("maintenance.mode")
        return maintenance.decide(word, self.inbox.asks_maintenance, frozenset(reasons))

    # -- acting

    def _act(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case SetSlot(label, state) if self._slots is not None:
                    try:
                        self._slots.set_state(label, state)
                    except SlotsError as error:
                        self._report("SlotsUnwritable", str(error))
                case RecordEvent(reason, message):
                    self._record(reason, message)
                case Begin():
                    self._ending.begin(effect, must_wait=False)
                case WithdrawUpdate():
                    self._ending.withdraw_update()

    def _decide_restarts(self, units: Iterable[str]) -> None:
        lost, self._lost_restarts = self._lost_restarts, ()
        for unit in lost:
            self._record("WatchdogRestart", f"{unit}: again, since the guardian ended before it was done")
        before = () if self._state.is_busy else self._restarts.unfinished(self._state.run.restarts)
        self._state.update_run(restarts=tuple(dict.fromkeys((*before, *units))))

    def _record(self, reason: str, message: str, image: str = "") -> None:
        self._report_event(reason, message)
        self._history.add(self._state.memory.restart_counter, self.now, reason, message, image)

    # -- storing and publishing

    def _note_boot(self, boot: str) -> None:
        """Store why this boot happened, at its first process."""
        state = self._state
        evidence = self._reasons.evidence(is_new=not state.memory.boot)
        record = self._reasons.read()
        if record is None:
            boot_reason, reason = deduce(evidence)
            record = BootRecord(boot_reason=boot_reason, reason=reason)
        counter = self._reasons.restarts()
        if state.memory.boot and counter == state.memory.restart_counter:  # the last boot could not write it
            counter += 1
        state.update_memory(boot=boot, restart_counter=counter, last_boot=record)
        state.store()
        self._record(BOOTED, f"{record.boot_reason.text}: {record.reason}", record.image)

    def _publish(self) -> None:
        state = self._state
        self._publisher.publish(NODE_AGENT_STATUS, NODE_AGENT, self.status())
        status = health_status(
            state.run, self.now, state.settings, self.checks, self._history.boots(), self._maintenance()
        )
        self._publisher.publish(HEALTH_STATUS, NODE_AGENT, status)
        self._leds.show(status, self.inbox.blink_counter)
        if state.table is None:
            return
        commit = state.run.validation.commit
        for slot in state.table.slots:
            self._publisher.publish(ZBOOT_CONFIG, slot.label, zboot_config(slot, commit))
            self._publisher.publish(ZBOOT_STATUS, slot.label, zboot_status(slot, state.table, commit))

    def _situation(self) -> Situation:
        state = self._state
        return Situation(
            run=state.run,
            table=state.table,
            reports=self.inbox.reports,
            checks=self.checks,
            vault=self.inbox.vault,
            mark=state.run.mark,
            is_halted=self.inbox.is_halted,
            drain=self.inbox.drain,
            items=dict(state.settings.items),
        )

    def status(self) -> NodeAgentStatus:
        """Return the published state of the node."""
        state = self._state
        return node_agent_status(
            state.run,
            state.memory,
            state.table,
            state.settings,
            self._maintenance(),
            waits_for_drain=drain.is_in_progress(self.inbox.drain),
        )
