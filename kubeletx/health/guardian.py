"""The guardian: once a tick it reads, decides with pure functions, stores, and acts.

    topics, slots, orders, checks ─► validate, operations ─► state files ─► slots, machine, topics

What is decided is stored before it is done, and done again until it shows: a guardian that is killed anywhere goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from . import drain, maintenance, operations
from .checks.base import LookFacts
from .checks.runner import CheckRunner
from .config import HealthSettings, merge
from .contact import merge as merge_contact
from .counters import take_counters
from .devices.leds import Leds
from .drain import DrainHold, DrainPhase, DrainRequester
from .forecast import Situation
from .history import NodeHistory
from .inbox import Inbox
from .machine import MachineEffects
from .maintenance import Maintenance, MaintenanceReason
from .model import (
    TICK_SECONDS,
    Begin,
    CheckState,
    Effect,
    Order,
    RestartUnit,
    SetSlot,
    SlotState,
    SlotTable,
    Tell,
)
from .operations import BootEnd, Deed, OperationStep
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
from .slots import Slots, SlotsError
from .state import Memory, RunState, StateFile
from .statuses import health_status, held_operation, node_agent_status, zboot_config, zboot_status
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


class Exit(Exception):
    """The guardian ends without a word to the watchdog, so that the hardware resets the machine."""


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
        tell: Callable[[str, str], object],
    ) -> None:
        """`slots` None: the node has one OS image. `boot`: identity of this boot. `tell`: logs a line; its first argument is a CamelCase reason."""
        self._tell = tell
        self._history = NodeHistory(persist / OWN / "history", lambda line: tell("BadState", line))
        self._slots, self._machine = slots, machine
        self._run_dir = run
        self._base_settings = settings
        self.inbox = Inbox(run, persist, lambda line: tell("BadTopic", line))
        self._publisher = Publisher(run, persist, lambda line: tell("CannotPublish", line))
        self.orders = Orders(run / OWN, lambda line: tell("BadOrder", line))

        def bad(line: str) -> None:
            tell("BadState", line)

        self._watch = AgentWatch(run, persist / OWN, settings.sections.get("watchdog", {}), tell)
        self.check_runner = CheckRunner(settings.sections.get("checks"), tell)
        self._leds = Leds(settings.sections.get("leds", {}), lambda line: tell("BadLed", line))
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
        self._slots_problem = ""
        self._waits_for_drain = False
        self.checks: tuple[CheckState, ...] = ()
        if self._memory.boot != boot:
            self._note_boot(boot)
        if self._reasons.read() == self._memory.last_boot:
            self._reasons.discard()

    @property
    def now(self) -> int:
        """Second of the current tick."""
        return self._run.ticks * TICK_SECONDS

    def tick(self) -> None:
        """Read, decide, store and act once. Raises what `MachineEffects.act` raises, and Exit."""
        self._run = replace(self._run, ticks=self._run.ticks + 1)
        self._read_slots()
        self.inbox.read(self.now)
        if self.inbox.items != self._controller_items:
            self._apply_settings()
        self._take_controller()
        self._write_slot()
        self._take_orders()
        watched, hits = self._watch.tick(self._run.watched, self.now, is_busy=self._is_busy)
        self._run = replace(self._run, watched=watched)
        changes = self._check()
        effects = [*self._decide(), *hits, *changes]
        self._store()
        self._act(effects)
        deeds = self._operate()
        self._withdraw_drain()
        self._publish()
        self._store()
        for deed in deeds:
            self._do(deed)

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
        except SlotsError as error:
            if str(error) != self._slots_problem:
                self._slots_problem = str(error)
                self._tell("SlotsUnreadable", f"{error}; the last known state counts")
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
                failed = FailedImage(other.label, other.version, "it was booted and did not pass its test")
            memory = replace(memory, tested="", failed=failed, last_boot=record)
        elif memory.tested:
            is_committed = memory.tested == table.current_label
            memory = replace(memory, tested="", failed=None if is_committed else memory.failed)
        self._memory = memory

    # -- orders

    def _take_controller(self) -> None:
        """Take what the controller wants of the slots: counters (T12, T13) and images that it has cancelled (T14)."""
        self._memory = replace(self._memory, commands=self.inbox.commands)
        self._run = replace(self._run, ignored=self.inbox.ignored)
        table, memory = self._table, self._memory
        if table is None or memory.commit or memory.write:
            return
        cancelled, self.inbox.cancelled = self.inbox.cancelled, []
        name = "force.fallback.counter"
        theirs = merge(HealthSettings(), {name: self.inbox.items.get(name)}, lambda _: None).items.get(name)
        fallback: dict[str, Any] = {
            "ForceFallbackCounter": self.inbox.fallback_counter,
            "ConfigItemValueMap": theirs,
            name: self._own_settings.items.get(name),
        }
        images = self.inbox.images.values()
        counters, effects = take_counters(memory.counters, fallback, images, table, memory.failed)
        self._memory = replace(memory, counters=counters)
        if any(image.base_os_version == table.other.version for image in cancelled):
            order = Order(id="", verb="cancel", label=table.other.label)
            effects = decide_image(order, table, memory.failed).effects
        self._decide_write(effects)
        self._store()

    def _take_orders(self) -> None:
        for order in self.orders.pending():
            reply = self._carry_out(order)
            self._decide_write(reply.effects)
            self._store()
            self.orders.answer(reply.answer, keeps=reply.keeps)
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
            return self._carry_out_image(order)
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

    def _carry_out_image(self, order: Order) -> Reply:
        if self._slots is None:
            return reply_to(order, "refused", "this node has one OS image; start with --slots")
        if order.verb == "cancel" and (waiting := self.orders.kept(order.label)):
            for kept in waiting:
                self.orders.answer(
                    reply_to(kept, "refused", f"{kept.verb} was cancelled").answer, keeps=False
                )
            return reply_to(order, "accepted", f"{order.label} is not booted")
        table, write = self._table, self._memory.write
        if table and write:
            table = table.with_state(write.label, write.state)
        decided = decide_image(order, table, self._memory.failed, commit=self._memory.commit)
        if order.verb == "install" and decided.answer.outcome == "accepted" and decided.effects:
            if not self.orders.is_kept(order):
                self._run = replace(self._run, drain=drain.ask_again(self._run.drain, self.now))
            if held_by := self._drain(DrainRequester.UPDATE):
                return reply_to(order, "deferred", held_by, keeps=True)
        return decided

    def _order_operation(self, order: Order) -> tuple[str, str]:
        """Return the message and the outcome."""
        if refusal := self._begin(request_of(order), must_wait=True):
            return refusal, "refused"
        self._run = replace(self._run, drain=drain.ask_again(self._run.drain, self.now))
        if held_by := self._held_by():
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
            self._tell("BadSetting", line)

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
        facts = LookFacts(run=self._run_dir, now=self.now, watched=self._run.watched, agent=self.inbox.agent)
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
                        self._tell("SlotsUnwritable", str(error))
                case Tell(reason, message):
                    self._record(reason, message)
                case Begin():
                    if refusal := self._begin(effect, must_wait=False):
                        self._tell("OperationRefused", f"{effect.kind}: {refusal}")
                case RestartUnit(unit):
                    self._restart(unit)

    def _restart(self, unit: str) -> None:
        def restart() -> None:
            try:
                self._machine.restart_unit(unit)
            except OSError as error:
                self._tell("CannotRestart", f"{unit}: {error}")

        # It runs a program.
        Thread(target=restart, name=f"restart {unit}", daemon=True).start()

    def _begin(self, request: Begin, *, must_wait: bool) -> str:
        """Begin an operation; returns why it is refused, empty: it is not."""
        before = self._run.operation
        operation, refusal = operations.begin(before, request, self.now, must_wait=must_wait)
        self._run = replace(self._run, operation=operation)
        if operation is not before and operation is not None:
            replaces = f"; it replaces a {before.kind} that has not begun" if operations.waits(before) else ""
            self._record(
                "OperationBegins",
                f"{operation.kind} ({operation.boot_reason.text}): {operation.reason}{replaces}",
            )
        return refusal

    def _operate(self) -> tuple[Deed, ...]:
        for request in self.inbox.take_requests():
            if refusal := self._begin(request, must_wait=True):
                self._tell("OperationRefused", f"{request.kind}: {refusal}")
        if self.inbox.has_new_command:
            self.inbox.has_new_command = False
            self._run = replace(self._run, drain=drain.ask_again(self._run.drain, self.now))
        operation = self._run.operation
        if operation is None:
            return ()
        operation, deeds = operations.advance(
            operation, self.now, is_held=bool(self._held_by()), all_halted=self.inbox.is_halted
        )
        self._run = replace(self._run, operation=operation)
        return deeds

    def _held_by(self) -> str:
        """Return why an operation of a user does not begin yet; asks for a drain if nothing else holds it."""
        if not self._is_testing and operations.waits(self._run.operation):
            self._drain(DrainRequester.DEVICEOP)
        return held_operation(self._run)

    def _drain(self, requester: DrainRequester) -> str:
        """Wait for a drain; returns why it holds `requester`, empty: it does not."""
        before, seen = self._run.drain, self.inbox.drain
        hold = drain.wait(before, requester, seen, self.now, self._settings)
        self._run = replace(self._run, drain=hold)
        self._waits_for_drain = True
        if hold.phase is not before.phase and (seen is not None or before.phase is not DrainPhase.NONE):
            self._record(f"Drain{hold.phase}", hold.reason)
        return hold.held_by

    def _withdraw_drain(self) -> None:
        """Forget the drain if nothing waits for it, and no boot follows."""
        is_needed = self._run.operation is not None or self._run.validation.phase is Phase.INSTALLED
        if not self._waits_for_drain and not is_needed:
            self._run = replace(self._run, drain=DrainHold())
        self._waits_for_drain = False

    def _do(self, deed: Deed) -> None:
        operation = self._run.operation
        assert operation is not None
        match deed:
            case Deed.WRITE_REASON:
                self._write_reason(operation)
            case Deed.SYNC:
                os.sync()
            case Deed.ACT:
                try:
                    self._machine.act(operation.kind, operation.boot_reason, operation.reason)
                except OSError as error:
                    self._tell("CannotAct", f"{operation.kind}: {error}")
            case Deed.EXIT:
                raise Exit(
                    f"the machine is still there {operations.BACKSTOP_SECONDS} s after {operation.kind}"
                )

    def _record(self, reason: str, message: str) -> None:
        self._tell(reason, message)
        self._history.add(self._memory.restart_counter, self.now, reason, message)

    def _write_reason(self, operation: BootEnd) -> None:
        record = BootRecord(
            boot_reason=operation.boot_reason,
            reason=operation.reason,
            image=self._table.current_label if self._table else "",
            stack=operation.stack,
        )
        try:
            self._reasons.write(record)
        except OSError as error:
            self._tell("BadState", f"the reason of the reboot cannot be written: {error.strerror}")

    # -- storing and telling

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
        try:
            counter = self._reasons.count_boot()
        except OSError as error:
            self._tell("BadState", f"status/restartcounter cannot be written: {error.strerror}")
            counter = self._memory.restart_counter + 1
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
