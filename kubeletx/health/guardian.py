"""The guardian: once a tick it reads, decides with pure functions, stores, and acts.

    topics, slots, orders, checks ─► validate, operations ─► state files ─► slots, machine, topics

What is decided is stored before it is done, and done again until it shows: a guardian that is killed anywhere goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from . import drain, maintenance
from .checks.base import LookFacts
from .checks.runner import CheckRunner
from .checks.sources import ContactSources
from .config import HealthSettings, merge
from .contact import merge as merge_contact
from .devices.leds import Leds
from .drain import DrainRequester
from .forecast import Situation
from .history import NodeHistory
from .inbox import Inbox
from .machine import MachineEffects
from .maintenance import Maintenance, MaintenanceReason
from .model import (
    Begin,
    CheckState,
    Effect,
    Order,
    RecordEvent,
    RestartUnit,
    SetSlot,
    SlotState,
    SlotTable,
    WithdrawUpdate,
)
from .operations import OperationStep, resume
from .orders import (
    IMAGE_VERBS,
    MARK_VERBS,
    OPERATION_VERBS,
    FailedImage,
    Reply,
    SlotWrite,
    decide_image,
    reply_to,
    request_of,
)
from .outbox import Orders
from .reasons import BootRecord, ReasonFiles, deduce
from .requests.counters import (
    fallback_counters,
    find_activated,
    kept_activation,
    take_cancelled,
    take_counters,
)
from .requests.ending import BootEnding
from .requests.restarts import UnitRestarts
from .slots import Slots, SlotsError, SlotsPending
from .state import Memory, RunState, StateFile
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
from .validation import ControllerMark, Facts, Phase, Validation, validate, vault_is_locked
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
        self._base_settings = settings
        self.inbox = Inbox(run, persist, lambda line: report("BadTopic", line))
        self._publisher = Publisher(run, persist, lambda line: report("CannotPublish", line))
        self.orders = Orders(run / OWN, persist / OWN, lambda line: report("BadOrder", line))

        def bad(line: str) -> None:
            report("BadState", line)

        self._watch = AgentWatch(run, persist / OWN, settings.sections.get("watchdog", {}), report)
        self.check_runner = CheckRunner(settings.sections.get("checks"), report)
        self.contact_sources = ContactSources(run, settings.sections.get("contact"), report)
        self._leds = Leds(settings.sections.get("leds", {}), lambda line: report("BadLed", line))
        self._reasons = ReasonFiles(persist)
        self._memory_file = StateFile(persist / OWN / "memory", Memory(), bad)
        self._run_file = StateFile(run / OWN / "state", RunState(), bad, survives_power_loss=False)
        self._memory = self._memory_file.read()
        self._run = self._run_file.read()
        if self._run.boot != boot:
            validation = Validation(commit=self._memory.commit)
            self._run = RunState(boot=boot, validation=validation, ignored=self._memory.commands)
        self.inbox.ignored = self._run.ignored
        self._settings = settings
        self._controller_items: dict[str, Any] = {}
        self._apply_settings()
        self._table: SlotTable | None = None
        self._slots_problem = self._wanted = ""
        operation, self._owed = resume(self._run.operation, self._run.now)
        self._run = replace(self._run, operation=operation)
        self._restarts, self._lost_restarts = UnitRestarts(machine, report), self._run.restarts
        self._ending = BootEnding(persist, self.inbox, machine, report, self._record)
        self.checks: tuple[CheckState, ...] = ()
        if self._memory.boot != boot:
            self._note_boot(boot)
        try:  # after the memory, so that a kill in between counts no boot twice
            self._reasons.write_restarts(self._memory.restart_counter + 1)
        except OSError as error:
            bad(f"status/restartcounter cannot be written: {error.strerror}")
        if self._reasons.read() == self._memory.last_boot:
            self._reasons.discard()

    @property
    def now(self) -> int:
        """Second of the current tick."""
        return self._run.now

    def tick(self) -> None:
        """Read, decide, store and act once. Raises what `MachineEffects.act` raises, and Exit."""
        self._run = replace(self._run, ticks=self._run.ticks + 1)
        self._read_slots()
        self.inbox.read(self.now)
        self.contact_sources.tick(self.now, self.inbox.receive)
        if self.inbox.items != self._controller_items:
            self._apply_settings()
        self._run = replace(self._run, ignored=self.inbox.ignored)
        self._memory = replace(self._memory, commands=self.inbox.commands)
        self._decide_write(self._take_counters())
        self._store()
        self._write_slot()
        self._take_orders()
        watched, hits = self._watch.tick(self._run.watched, self.now, is_busy=self._is_busy)
        self._run = replace(self._run, watched=watched)
        changes = self._check()
        effects = [*self._decide(), *hits, *changes]
        # A verdict and the operation that follows from it are stored in one write: neither is found without the other.
        self._act([effect for effect in effects if isinstance(effect, Begin | WithdrawUpdate)])
        self._decide_restarts(effect.unit for effect in effects if isinstance(effect, RestartUnit))
        self._store()
        self._act([effect for effect in effects if not isinstance(effect, Begin | WithdrawUpdate)])
        self._restarts.begin(self._run.restarts)
        self._run, deeds = self._ending.advance(self._run, self._settings)
        self._publish()
        self._store()
        owed, self._owed = self._owed, ()
        for deed in (*owed, *deeds):
            self._ending.do(self._run, deed, self._table.current_label if self._table else "")

    def hurry(self) -> None:
        """Take orders between two ticks."""
        self._read_slots()
        self._take_orders()

    # -- reading

    def _read_slots(self) -> None:
        if self._slots is None:
            return
        try:
            self._table = self._slots.read()
        except SlotsPending:
            return
        except SlotsError as error:
            if str(error) != self._slots_problem:
                self._slots_problem = str(error)
                self._report("SlotsUnreadable", f"{error}; the last known state counts")
            return
        self._slots_problem = ""
        self._note_failure(self._table)
        if self._memory.write is not None and not self._memory.write.is_due(self._table, self._run.boot):
            self._memory = replace(self._memory, write=None)

    def _note_failure(self, table: SlotTable) -> None:
        """Remember which image was tested, and that it has failed if the old one runs again."""
        memory, other = self._memory, table.other
        if table.current.state is SlotState.INPROGRESS:
            memory = replace(memory, tested=table.current_label)
        elif other.state is SlotState.INPROGRESS:
            failed, record = memory.failed, self._reasons.after_failed_update(memory.last_boot, table)
            if record is not memory.last_boot:
                self._record("UpgradeFailed", f"{record.boot_reason.text}: {record.reason}")
            # Noted once: an installer may write the next image, with another version, while the slot has this state.
            if record is not memory.last_boot or memory.tested:
                failed = FailedImage(other.label, other.version, record.reason)
            memory = replace(memory, tested="", failed=failed, last_boot=record)
        elif memory.tested:
            is_committed = memory.tested == table.current_label
            memory = replace(memory, tested="", failed=None if is_committed else memory.failed)
        self._memory = memory

    # -- orders

    def _take_counters(self) -> Sequence[Effect]:
        if self._table is None or self._memory.commit or self._memory.write:
            return ()
        images = self.inbox.images.values()
        counters, effects = take_counters(
            self._memory.counters,
            fallback_counters(self.inbox, self._own_settings),
            images,
            self._table,
            self._memory.failed,
        )
        activated = kept_activation(self._memory.activated, images, self.inbox.cancelled)
        self._memory = replace(self._memory, counters=counters, activated=activated)
        return take_cancelled(self.inbox, self._table) or effects or self._activate(self._table)

    def _activate(self, table: SlotTable) -> Sequence[Effect]:
        version = find_activated(self.inbox.images.values(), table, self._memory.activated)
        if not version:
            return ()
        is_new, self._wanted = version != self._wanted, version
        order = Order(id="", verb="install", label=table.other.label, version=version)
        reply = self._carry_out_image(order, is_new=is_new)
        if reply.keeps:
            return ()
        self._memory = replace(self._memory, activated=version)
        if reply.answer.outcome == "refused":
            self._record("InstallRefused", reply.answer.message)
        return reply.effects

    def _take_orders(self) -> None:
        for order in self.orders.pending():
            reply = self._carry_out(order)
            self._decide_write(reply.effects)
            self._store()
            self.orders.answer(order, reply.answer, keeps=reply.keeps)
            self._write_slot()

    def _decide_write(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SetSlot) and self._table is not None:
                before = self._table.get(effect.label).state
                write = SlotWrite(effect.label, effect.state, before, self._run.boot)
                self._memory = replace(self._memory, write=write if before is not effect.state else None)

    def _write_slot(self) -> None:
        write = self._memory.write
        if write is not None:
            self._act([SetSlot(write.label, write.state)])
            self._read_slots()

    def _carry_out(self, order: Order) -> Reply:
        message, outcome = "", "accepted"
        if order.verb in IMAGE_VERBS:
            return self._carry_out_image(order, is_new=not self.orders.is_kept(order))
        if order.verb in OPERATION_VERBS:
            message, outcome = self._order_operation(order)
        elif order.verb in MARK_VERBS:
            if self._is_testing:
                mark = ControllerMark(order.verb.removeprefix("mark-"))
                self._run = replace(self._run, mark=mark)
                message = f"the running image is marked {mark}"
            else:
                message, outcome = "no image is being tested", "refused"
        elif order.verb == "maintenance":
            is_on = order.values.get("mode") == "on"
            self._memory = replace(self._memory, asks_maintenance=is_on)
            message = f"maintenance mode is {'asked for' if is_on else 'not asked for any more'}"
        elif order.verb == "plan":
            message = msgspec.json.encode(self._situation()).decode()
        elif order.verb == "config":
            message, outcome = self._set_items(order.values)
        else:
            message, outcome = f"{order.verb!r} is not an order", "refused"
        return reply_to(order, outcome, message)

    def _carry_out_image(self, order: Order, *, is_new: bool) -> Reply:
        if self._slots is None:
            return reply_to(order, "refused", "this node has one OS image; start with --slots")
        if order.verb == "cancel" and (waiting := self.orders.kept(order.label)):
            for kept in waiting:
                reply = reply_to(kept, "refused", f"{kept.verb} was cancelled")
                self.orders.answer(kept, reply.answer, keeps=False)
            return reply_to(order, "accepted", f"{order.label} is not booted")
        table, write = self._table, self._memory.write
        if table and write:
            table = table.with_state(write.label, write.state)
        decided = decide_image(order, table, self._memory.failed, commit=self._memory.commit)
        if order.verb == "install" and decided.answer.outcome == "accepted" and decided.effects:
            self._run, held_by = self._ending.drain(
                self._run, DrainRequester.UPDATE, self._settings, is_new_order=is_new
            )
            if held_by:
                return reply_to(order, "deferred", held_by, keeps=True)
        return decided

    def _order_operation(self, order: Order) -> tuple[str, str]:
        """Return the message and the outcome."""
        self._run, refusal = self._ending.begin(self._run, request_of(order), must_wait=True)
        if refusal:
            return refusal, "refused"
        self._run, held_by = self._ending.hold(self._run, self._settings, is_new_order=True)
        if held_by:
            return f"{order.verb} waits: {held_by}", "deferred"
        return f"{order.verb} is under way", "accepted"

    def _set_items(self, values: dict[str, str]) -> tuple[str, str]:
        problems: list[str] = []
        wanted = {name: value for name, value in values.items() if value}
        checked = merge(HealthSettings(), wanted, problems.append).items
        if problems:
            return "; ".join(problems), "refused"
        items = {name: value for name, value in self._memory.items.items() if name not in values}
        self._memory = replace(self._memory, items={**items, **checked})
        self._apply_settings()
        return ", ".join(
            f"{name}={value}" if value else f"{name} removed" for name, value in values.items()
        ), "accepted"

    def _apply_settings(self) -> None:
        def bad(line: str) -> None:
            self._report("BadSetting", line)

        self._own_settings = merge(self._base_settings, self._memory.items, bad)
        self._controller_items = self.inbox.items
        self._settings = merge(self._own_settings, self._controller_items, bad)

    # -- deciding

    @property
    def _is_testing(self) -> bool:
        return self._run.validation.phase is Phase.TESTING

    def _decide(self) -> Sequence[Effect]:
        contact = merge_contact(
            self._run.contact, self.inbox.reports, self.now, self._settings.number("contact.fresh.limit")
        )
        facts = Facts(
            now=self.now,
            table=self._table,
            contact=contact,
            checks=self.checks,
            vault=self.inbox.vault,
            mark=self._run.mark,
            is_busy=self._is_busy,
        )
        validation, effects = validate(self._run.validation, facts, self._settings)
        if validation.phase is not Phase.TESTING:
            self._run = replace(self._run, mark=ControllerMark.NONE)
        self._run = replace(self._run, validation=validation, contact=contact)
        self._memory = replace(self._memory, commit=validation.commit)
        return effects

    def _check(self) -> Sequence[Effect]:
        facts = LookFacts(
            run=self._run_dir,
            now=self.now,
            watched=self._run.watched,
            agent=self.inbox.agent,
            agent_silent=self.now - self.inbox.agent_at,
        )
        records, changes = self.check_runner.tick(self._run.checks, facts)
        self.checks = self.check_runner.states(records, facts)
        self._run = replace(self._run, checks=records)
        return changes

    @property
    def _is_busy(self) -> bool:
        operation = self._run.operation
        return operation is not None and operation.step not in {OperationStep.WAITING, OperationStep.HALTED}

    def _maintenance(self) -> Maintenance:
        reasons = set(self.inbox.reasons)
        if self._memory.asks_maintenance:
            reasons.add(MaintenanceReason.USER_REQUESTED)
        validation = self._run.validation
        if validation.phase is Phase.NORMAL and vault_is_locked(validation, self.now, self._settings):
            reasons.add(MaintenanceReason.VAULT_LOCKED_UP)
        word = self._settings.word("maintenance.mode")
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
                    self._run, _ = self._ending.begin(self._run, effect, must_wait=False)
                case WithdrawUpdate():
                    self._run = self._ending.withdraw_update(self._run)

    def _decide_restarts(self, units: Iterable[str]) -> None:
        lost, self._lost_restarts = self._lost_restarts, ()
        for unit in lost:
            self._record("WatchdogRestart", f"{unit}: again, since the guardian ended before it was done")
        before = () if self._is_busy else self._restarts.unfinished(self._run.restarts)
        self._run = replace(self._run, restarts=tuple(dict.fromkeys((*before, *units))))

    def _record(self, reason: str, message: str) -> None:
        self._report_event(reason, message)
        self._history.add(self._memory.restart_counter, self.now, reason, message)

    # -- storing and publishing

    def _store(self) -> None:
        self._memory_file.write(self._memory)
        self._run_file.write(self._run)

    def _note_boot(self, boot: str) -> None:
        """Store why this boot happened, at its first process."""
        evidence = self._reasons.evidence(is_new=not self._memory.boot)
        record = self._reasons.read()
        if record is None:
            boot_reason, reason = deduce(evidence)
            record = BootRecord(boot_reason=boot_reason, reason=reason)
        counter = self._reasons.restarts()
        if self._memory.boot and counter == self._memory.restart_counter:  # the last boot could not write it
            counter += 1
        self._memory = replace(self._memory, boot=boot, restart_counter=counter, last_boot=record)
        self._memory_file.write(self._memory)
        self._record("Booted", f"{record.boot_reason.text}: {record.reason}")

    def _publish(self) -> None:
        self._publisher.publish(NODE_AGENT_STATUS, NODE_AGENT, self.status())
        status = health_status(self._run, self.now, self._settings, self.checks, self._maintenance())
        self._publisher.publish(HEALTH_STATUS, NODE_AGENT, status)
        self._leds.show(status, self.inbox.blink_counter)
        if self._table is None:
            return
        commit = self._run.validation.commit
        for slot in self._table.slots:
            self._publisher.publish(ZBOOT_CONFIG, slot.label, zboot_config(slot, commit))
            self._publisher.publish(ZBOOT_STATUS, slot.label, zboot_status(slot, self._table, commit))

    def _situation(self) -> Situation:
        return Situation(
            run=self._run,
            table=self._table,
            reports=self.inbox.reports,
            checks=self.checks,
            vault=self.inbox.vault,
            mark=self._run.mark,
            is_halted=self.inbox.is_halted,
            drain=self.inbox.drain,
            items=dict(self._settings.items),
        )

    def status(self) -> NodeAgentStatus:
        """Return the published state of the node."""
        return node_agent_status(
            self._run,
            self._memory,
            self._table,
            self._settings,
            self._maintenance(),
            waits_for_drain=drain.is_in_progress(self.inbox.drain),
        )
