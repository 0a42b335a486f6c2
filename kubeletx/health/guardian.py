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

from . import maintenance, operations
from .config import HealthSettings, merge
from .contact import merge as merge_contact
from .devices.leds import Leds
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
    OrderAnswer,
    RestartUnit,
    SetSlot,
    SlotState,
    SlotTable,
    Tell,
)
from .operations import BootEnd, Deed, OperationStep
from .orders import IMAGE_VERBS, MARK_VERBS, OPERATION_VERBS, FailedImage, decide_image, request_of
from .outbox import Orders
from .reasons import BootRecord, ReasonFiles, deduce
from .slots import Slots, SlotsError
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
        self._base_settings = settings
        self.inbox = Inbox(run, persist, lambda line: tell("BadTopic", line))
        self._publisher = Publisher(run, persist, lambda line: tell("CannotPublish", line))
        self.orders = Orders(run / OWN, lambda line: tell("BadOrder", line))

        def bad(line: str) -> None:
            tell("BadState", line)

        self._watch = AgentWatch(run, persist / OWN, settings.sections.get("watchdog", {}), tell)
        self._leds = Leds(settings.sections.get("leds", {}), lambda line: tell("BadLed", line))
        self._reasons = ReasonFiles(persist)
        self._memory_file = StateFile(persist / OWN / "memory", Memory(), bad)
        self._run_file = StateFile(run / OWN / "state", RunState(), bad, survives_power_loss=False)
        self._memory = self._memory_file.read()
        self._run = self._run_file.read()
        if self._run.boot != boot:
            self._run = RunState(boot=boot, validation=Validation(commit=self._memory.commit))
        self._settings = settings
        self._controller_items: dict[str, Any] = {}
        self._apply_settings()
        self._table: SlotTable | None = None
        self._slots_problem = ""
        self._mark = ControllerMark.NONE
        self._requests: list[Begin] = []
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
        self._note_counter("ForceFallbackCounter", self.inbox.fallback_counter)
        self._take_orders()
        watched, hits = self._watch.tick(self._run.watched, self.now, is_busy=self._is_busy)
        self._run = replace(self._run, watched=watched)
        effects = [*self._decide(), *hits]
        self._store()
        self._act(effects)
        deeds = self._operate()
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

    def _note_failure(self, table: SlotTable) -> None:
        """Remember which image was tested, and that it has failed if the old one runs again."""
        memory = self._memory
        if table.current.state is SlotState.INPROGRESS:
            memory = replace(memory, tested=table.current_label)
        elif memory.tested and memory.tested != table.current_label:
            slot = table.get(memory.tested) if memory.tested == table.other.label else None
            if slot is not None and slot.state is SlotState.INPROGRESS:
                failed = FailedImage(slot.label, slot.version, "it was booted and did not pass its test")
                memory = replace(memory, failed=failed)
            memory = replace(memory, tested="")
        elif memory.tested:
            memory = replace(memory, tested="", failed=None)
        self._memory = memory

    def _note_counter(self, name: str, value: int | None) -> None:
        """T13: a change of the controller's counter asks for the other image; the first value ever is only stored."""
        before = self._memory.counters.get(name)
        if value is None or before == value or self._table is None:
            return
        if before is not None:
            order = Order(id="", verb="force-fallback", label=self._table.other.label)
            reply = decide_image(order, self._table, self._memory.failed, commit=self._memory.commit)
            if not reply.effects:
                return  # it stays pending
            self._act(reply.effects)
        self._memory = replace(self._memory, counters={**self._memory.counters, name: value})

    def _take_orders(self) -> None:
        for order in self.orders.pending():
            effects = self._carry_out(order)
            self._store()
            if effects:
                self._act(effects)
                self._read_slots()

    def _carry_out(self, order: Order) -> Sequence[Effect]:
        if order.verb in IMAGE_VERBS and self._slots is None:
            answer = OrderAnswer(
                id=order.id, outcome="refused", message="this node has one OS image; start with --slots"
            )
            self.orders.answer(answer, keeps=False)
            return ()
        if order.verb in IMAGE_VERBS:
            reply = decide_image(order, self._table, self._memory.failed, commit=self._memory.commit)
            self.orders.answer(reply.answer, keeps=reply.keeps)
            return reply.effects
        message, outcome = "", "accepted"
        if order.verb in OPERATION_VERBS:
            request = request_of(order)
            operation, refusal = operations.begin(
                self._run.operation, request, self.now, waits=self._is_testing
            )
            if refusal:
                message, outcome = refusal, "refused"
            else:
                self._requests.append(request)
                waits = operation is not None and operation.step is OperationStep.WAITING
                message = (
                    f"{order.verb} waits for the verdict on the image" if waits else f"{order.verb} begins"
                )
                outcome = "deferred" if waits else "accepted"
        elif order.verb in MARK_VERBS:
            if self._is_testing:
                self._mark = ControllerMark(order.verb.removeprefix("mark-"))
                message = f"the running image is marked {self._mark}"
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
        self.orders.answer(OrderAnswer(id=order.id, outcome=outcome, message=message), keeps=False)
        return ()

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

        settings = merge(self._base_settings, self._memory.items, bad)
        self._controller_items = self.inbox.items
        self._settings = merge(settings, self._controller_items, bad)

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
            mark=self._mark,
            is_busy=self._is_busy,
        )
        validation, effects = validate(self._run.validation, facts, self._settings)
        if validation.phase is not Phase.TESTING:
            self._mark = ControllerMark.NONE
        self._run = replace(self._run, validation=validation, contact=contact)
        self._memory = replace(self._memory, commit=validation.commit)
        return effects

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
                    self._begin([effect], waits=False)
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

    def _begin(self, requests: list[Begin], *, waits: bool) -> None:
        request = operations.strongest(requests)
        if request is None:
            return
        before = self._run.operation
        operation, refusal = operations.begin(before, request, self.now, waits=waits)
        self._run = replace(self._run, operation=operation)
        if operation is not before and operation is not None:
            self._record(
                "OperationBegins", f"{operation.kind} ({operation.boot_reason.text}): {operation.reason}"
            )
        elif refusal:
            self._tell("OperationRefused", f"{request.kind}: {refusal}")

    def _operate(self) -> tuple[Deed, ...]:
        requests, self._requests = self._requests, []
        self._begin([*requests, *self.inbox.take_requests()], waits=self._is_testing)
        operation = self._run.operation
        if operation is None:
            return ()
        operation, deeds = operations.advance(
            operation,
            self.now,
            is_testing=self._is_testing,
            all_halted=self.inbox.is_halted,
        )
        self._run = replace(self._run, operation=operation)
        return deeds

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
            mark=self._mark,
            is_halted=self.inbox.is_halted,
            items=dict(self._settings.items),
        )

    def status(self) -> NodeAgentStatus:
        """Return the published state of the node."""
        return node_agent_status(self._run, self._memory, self._table, self._settings, self._maintenance())
