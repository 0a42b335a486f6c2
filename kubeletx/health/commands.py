"""Verbs of ``kubeletx health``: each reads files of the guardian, or sends it an order."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

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
    config = add("config", "Show the settings, or change items: NAME=VALUE; NAME= removes a change.")
    config.add_argument("items", nargs="*", metavar="NAME=VALUE")
    config.set_defaults(command=_config)


def _status(options: argparse.Namespace) -> int:
    from .topics import NodeAgentStatus, find

    path = options.run_dir / "nodeagent" / "NodeAgentStatus" / "nodeagent.json"
    try:
        status = find(NodeAgentStatus, path)
    except (OSError, ValueError) as error:
        return _fail(f"{path}: {error}")
    if status is None:
        return _fail(f"{path} does not exist: no guardian has run with --run-dir {options.run_dir}")
    import msgspec

    fields = json.loads(msgspec.json.encode(status))
    if options.output == "json":
        print(json.dumps(fields, indent=2))
        return 0
    for name, value in fields.items():
        print(f"{name:<30}{value}")
    return 0


def _order(options: argparse.Namespace) -> int:
    return _send(
        options.run_dir,
        options.verb,
        label=getattr(options, "label", ""),
        version=getattr(options, "version", ""),
        reason=getattr(options, "reason", ""),
    )


def _send(run_dir: Path, verb: str, **fields: object) -> int:
    from .model import Order
    from .outbox import new_id, send

    directory = run_dir / OWN
    if not _guardian_runs(directory):
        return _fail(f"no guardian runs with --run-dir {run_dir}; nothing was ordered")
    try:
        answer = send(directory, Order(id=new_id(), verb=verb, **fields), ANSWER_SECONDS)  # type: ignore[arg-type] # fields of Order
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}")
    if answer is None:
        return _fail(
            f"the guardian of {run_dir} did not answer within {ANSWER_SECONDS:g} s; nothing was ordered"
        )
    print(f"{answer.outcome}: {answer.message}")
    return 1 if answer.outcome == "refused" else 0


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
