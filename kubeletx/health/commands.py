"""Verbs of ``kubeletx health``: each reads files of the guardian, or sends it an order."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .model import BootReason, CheckLevel, Order, OrderAnswer, Reach

if TYPE_CHECKING:
    from .topics import HealthStatus, NodeAgentStatus

OWN = "kubeletx-health"
ANSWER_SECONDS = 15.0


def add_verbs(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Add the verbs to the command line; `add` makes the parser of one verb."""
    status = add("status", "Show the verdict, the slots and the checks.")
    status.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="json: NodeAgentStatus"
    )
    status.set_defaults(command=_status)
    for verb, text in (
        ("install", "Boot the image in a slot once and test it."),
        ("cancel", "Do not boot the new image in a slot."),
        ("retry", "Boot a failed image once more."),
        ("force-fallback", "Go back to the unused image in a slot."),
    ):
        parser = add(verb, text)
        parser.add_argument("label", metavar="LABEL", help="the slot, such as IMGB")
        if verb == "install":
            parser.add_argument("--version", default="", help="version of the image")
        parser.set_defaults(command=_order)
    for verb, text in (
        ("reboot", "End all pods and reboot."),
        ("shutdown", "End all pods; the machine stays on."),
        ("poweroff", "End all pods and switch off."),
        ("mark-active", "Commit the image under test now."),
        ("mark-failed", "Let the image under test fall back now."),
    ):
        parser = add(verb, text)
        parser.add_argument("--reason", default="", help="a line for the history")
        parser.set_defaults(command=_order)
    maintenance = add("maintenance", "Ask for maintenance mode, or take the request back.")
    maintenance.add_argument("mode", choices=("on", "off"))
    maintenance.set_defaults(command=lambda o: _send(o.run_dir, "maintenance", values={"mode": o.mode}))
    plan = add("plan", "Show what would happen next, when, and why.")
    plan.add_argument("-o", "--output", choices=("text", "json"), default="text")
    plan.set_defaults(command=_plan)
    history = add("history", "Show boots, upgrades, operations and watchdog hits.")
    history.add_argument("-o", "--output", choices=("text", "json"), default="text")
    history.set_defaults(command=_history)
    config = add("config", "Show the settings, or change items: NAME=VALUE; NAME= removes a change.")
    config.add_argument("items", nargs="*", metavar="NAME=VALUE")
    config.set_defaults(command=_config)


def _status(options: argparse.Namespace) -> int:
    import msgspec

    from .topics import (
        HEALTH_STATUS,
        NODE_AGENT,
        NODE_AGENT_STATUS,
        HealthStatus,
        NodeAgentStatus,
        find,
        path_of,
    )

    paths = [path_of(options.run_dir, topic, NODE_AGENT) for topic in (NODE_AGENT_STATUS, HEALTH_STATUS)]
    try:
        status, health = find(NodeAgentStatus, paths[0]), find(HealthStatus, paths[1])
    except (OSError, ValueError) as error:
        return _fail(f"{paths[0].parent}: {error}")
    if status is None:
        return _fail(f"{paths[0]} does not exist: no guardian has run with --run-dir {options.run_dir}")
    if options.output == "json":
        print(json.dumps(json.loads(msgspec.json.encode(status)), indent=2))
        return 0
    if not _guardian_runs(options.run_dir / OWN):
        print("The guardian does not run; this is its last status.")
    for line in status_lines(status, health or HealthStatus()):
        print(line)
    return 0


def status_lines(status: NodeAgentStatus, health: HealthStatus) -> Iterator[str]:
    """Return the lines that ``kubeletx health status`` prints."""
    contact = Reach(health.contact).name.lower().replace("_", " ")
    source = f" by {health.contact_source}" if health.contact_source else ""
    rows = {
        "Image": f"{status.cur_part or 'the only one'}, {health.phase}",
        "Test window": f"{health.remaining_test_time} s left" if health.remaining_test_time else "",
        "Health": _verdict(health),
        "Held by": health.held_by,
        "Operation": f"{health.operation}: {status.reboot_reason}" if health.operation else "",
        "Waits for": health.operation_held_by,
        "Drain": health.drain,
        "Controller": f"{contact}{source}, last reached {health.silent_seconds} s ago",
        "Maintenance": "on" if health.maintenance_mode else "off",
        "Reasons": ", ".join(health.maintenance_reasons),
        "Last boot": f"{BootReason(status.boot_reason).text}: {status.reboot_reason}"
        if not health.operation
        else "",
        "Boots": str(status.restart_counter + 1),
    }
    yield from (f"{name + ':':<14}{value}" for name, value in rows.items() if value)
    if health.checks:
        yield ""
        yield f"{'CHECK':<24}{'LEVEL':<13}{'RESULT':<9}REASON"
    for check in health.checks:
        result = {None: "unknown", True: "ok", False: "failed"}[check.ok]
        yield f"{check.name:<24}{check.level:<13}{result:<9}{check.message}"


def _verdict(health: HealthStatus) -> str:
    """Return the verdict with the reason of each failed check, the most important first."""
    failed = [check for check in health.checks if check.ok is False]
    required = [f"{check.name}: {check.message}" for check in failed if check.level == CheckLevel.REQUIRED]
    wanted = [f"{check.name}: {check.message}" for check in failed if check.level == CheckLevel.WANTED]
    word = "ok" if health.is_healthy else "required checks fail"
    if health.is_healthy and wanted:
        word = "ok, but wanted checks fail"
    reasons = "; ".join(required or wanted)
    return f"{word}: {reasons}" if reasons else word


def _plan(options: argparse.Namespace) -> int:
    import msgspec

    from .forecast import Situation, forecast

    answer = _ask(options.run_dir, "plan")
    if answer is None:
        return 1
    start = msgspec.json.decode(answer.message, type=Situation)
    plans = {name: forecast(start, repeats=repeats) for name, repeats in (("same", True), ("silent", False))}
    if options.output == "json":
        print(json.dumps({name: [e._asdict() for e in plan] for name, plan in plans.items()}, indent=2))
        return 0
    titles = {"same": "If everything stays as it is:", "silent": "If all sources fall silent now:"}
    for name, title in titles.items():
        print(title)
        for entry in plans[name]:
            print(f"  in {entry.in_seconds} s: {entry.what}")
        if not plans[name]:
            print("  nothing")
    return 0


def _history(options: argparse.Namespace) -> int:
    from .state import NodeHistory

    entries = NodeHistory(options.persist_dir / OWN / "history", _fail).entries()
    if options.output == "json":
        print(
            json.dumps(
                [{f: getattr(entry, f) for f in entry.__struct_fields__} for entry in entries], indent=2
            )
        )
        return 0
    for entry in entries:
        print(f"{entry.time}  boot {entry.boot:<4} {entry.second:>8} s  {entry.reason}: {entry.message}")
    return 0


def _order(options: argparse.Namespace) -> int:
    return _send(
        options.run_dir,
        options.verb,
        label=getattr(options, "label", ""),
        version=getattr(options, "version", ""),
        reason=getattr(options, "reason", ""),
    )


def _send(run_dir: Path, verb: str, **fields: Any) -> int:
    answer = _ask(run_dir, verb, **fields)
    if answer is None:
        return 1
    print(f"{answer.outcome}: {answer.message}")
    return 1 if answer.outcome == "refused" else 0


def _ask(run_dir: Path, verb: str, **fields: Any) -> OrderAnswer | None:
    """Send an order and return the answer; None: there is none, and the reason was printed."""
    from .outbox import new_id, send

    directory = run_dir / OWN
    if not _guardian_runs(directory):
        _fail(f"no guardian runs with --run-dir {run_dir}; nothing was ordered")
        return None
    try:
        answer = send(directory, Order(id=new_id(), verb=verb, **fields), ANSWER_SECONDS)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}")
        return None
    if answer is None:
        _fail(f"the guardian of {run_dir} did not answer within {ANSWER_SECONDS:g} s; nothing was ordered")
    return answer


def _guardian_runs(directory: Path) -> bool:
    from kubeletx.linux.locks import lock_holders

    lock = directory / "lock"
    return lock.exists() and bool(lock_holders(lock))


def _config(options: argparse.Namespace) -> int:
    from .config import ITEMS

    if not options.items:
        for name, item in ITEMS.items():
            limits = ", ".join(item.words) if item.words else f"{item.minimum} to {item.maximum}"
            print(f"{name:<45}{item.default!s:<12}{limits}")
        return 0
    values = {}
    for text in options.items:
        name, is_set, value = text.partition("=")
        if not is_set:
            return _fail(f"{text!r} is not NAME=VALUE")
        values[name] = value
    return _send(options.run_dir, "config", values=values)


def _fail(line: str) -> int:
    print(f"kubeletx health: {line}", file=sys.stderr)
    return 1
