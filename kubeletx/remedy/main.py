"""``kubeletx remedy``: runs the controller, or, with a verb, shows and directs its flows."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .decisions import Change
    from .planner import FlowPlan

NAMESPACE: Final = "kube-system"
LEASE: Final = "kubeletx-remedy"
_USER_AGENT: Final = "kubeletx-remedy"


def _boolean(text: str) -> bool:
    words = {"true": True, "false": False}
    if text not in words:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return words[text]


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    add = common.add_argument
    add("--kubeconfig", type=Path, default=argparse.SUPPRESS, metavar="FILE", help="API server and identity (default: $KUBECONFIG, or the pod's service account)")  # fmt: skip
    add("--config", type=Path, action="append", default=argparse.SUPPRESS, metavar="FILE", help="configuration; may be repeated")  # fmt: skip
    add("--namespace", default=argparse.SUPPRESS, metavar="NAME", help=f"of ConfigMaps, secrets, jobs and the leader's Lease (default {NAMESPACE})")  # fmt: skip
    parser = argparse.ArgumentParser(
        prog="kubeletx remedy",
        parents=[common],
        description="Watch the nodes of a cluster; fence, repair and bring back sick ones.",
    )
    parser.add_argument(
        "--leader-elect",
        type=_boolean,
        nargs="?",
        const=True,
        default=True,
        metavar="BOOL",
        help="act only while holding the Lease (default true)",
    )
    parser.add_argument(
        "--agents-dir",
        type=Path,
        default=Path("/usr/sbin"),
        metavar="DIR",
        help="fence agents (default /usr/sbin)",
    )
    parser.add_argument(
        "--node-name",
        default=os.environ.get("NODE_NAME", ""),
        metavar="NAME",
        help="node that this process runs on, which it never fences (default $NODE_NAME)",
    )
    parser.add_argument(
        "--metrics-address",
        default="",
        metavar="HOST:PORT",
        help="serve /metrics and /healthz there (default: not at all)",
    )
    parser.add_argument(
        "--kdump-port",
        type=int,
        default=7410,
        metavar="PORT",
        help="UDP port for messages of fence_kdump (default 7410)",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    from .admin.commands import add_verbs

    add_verbs(verbs, common)
    return parser


def verbs() -> dict[str, str]:
    """Return the verbs, each with its line of help."""
    (parsers,) = (a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    return {choice.dest: choice.help or "" for choice in parsers._choices_actions}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options; ``command``: the function that takes them. Exits with code 2 if they are wrong."""
    options = _parser().parse_args(arguments)
    options.kubeconfig = getattr(options, "kubeconfig", None)
    options.config = getattr(options, "config", [])
    options.namespace = getattr(options, "namespace", NAMESPACE)
    options.command = getattr(options, "command", run)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    from kubeletx.api import KubeletxError

    options = parse(arguments)
    work: Callable[[argparse.Namespace], Coroutine[Any, Any, int]] = options.command
    _log_to_stderr(is_quiet=work is not run)
    try:
        return asyncio.run(work(options))
    except KubeletxError as error:
        print(f"kubeletx remedy: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _log_to_stderr(*, is_quiet: bool) -> None:
    """Send log lines to standard error. `is_quiet`: only warnings, since a person reads the output of a verb."""
    import logging

    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING if is_quiet else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


async def run(options: argparse.Namespace) -> int:
    """Run the controller until SIGTERM or SIGINT."""
    from kubeletx.api import SystemClock, first_of
    from kubeletx.kube.client.lease_lock import LeaseLock, LockLost, new_identity

    from .actions.agent import FenceAgents
    from .actions.builtin import BuiltinMethods
    from .actions.credentials import secrets_of
    from .actions.external import ExternalAction
    from .actions.job import JobAction
    from .actions.plugin import PluginAction
    from .admin.client import client_of
    from .admin.events import COMPONENT, FAILED, REPEATED, EventWriter, events_of
    from .admin.metrics import RemedyMetrics, served
    from .cluster import ClusterWatch
    from .controller import RemedyController
    from .fences import FenceRecords
    from .release import PodRelease
    from .safety import leases, surroundings
    from .safety.kdump import KernelDumps
    from .sources import ConfigSources

    clock = SystemClock()
    client = client_of(options, clock)
    lock = LeaseLock(client, namespace=options.namespace, name=LEASE, identity=new_identity(), clock=clock)

    def may_act() -> bool:
        return lock.is_held if options.leader_elect else True

    watch = ClusterWatch(client, clock)
    sources = ConfigSources(
        options.config, client=client, namespace=options.namespace, clock=clock, changed=watch.changed.set
    )
    sources.read_files()
    records = FenceRecords(client, clock)
    dumps = KernelDumps(lambda: watch.nodes.items, clock, watch.changed.set)
    release = PodRelease(client, clock, lambda: sources.configurations.settings, may_act)
    events = EventWriter(client, clock, f"{COMPONENT}-{options.node_name}".rstrip("-"))
    metrics = RemedyMetrics(
        fences=lambda: watch.fences.items,
        settings=lambda: sources.configurations.settings,
        now=clock.now,
        leads=may_act,
        problem=lambda: watch.problem,
        configuration_problems=lambda: len(sources.problems),
    )

    def report(plan: FlowPlan, change: Change) -> None:
        metrics.changed(change)
        for event in events_of(plan, change, clock.now()):
            events.put(event)
            if event.reason in (FAILED, REPEATED):
                metrics.alarmed(event.reason)

    controller = RemedyController(
        watch,
        records,
        {
            "agent": FenceAgents(
                directory=options.agents_dir, read_secret=secrets_of(client, options.namespace)
            ),
            "builtin": BuiltinMethods(client, release),
            "job": JobAction(client, clock=clock, namespace=options.namespace),
            "external": ExternalAction(client, clock=clock, namespace=options.namespace),
            "plugin": PluginAction(client, clock=clock, namespace=options.namespace),
        },
        release,
        leases.NodeLeases(
            client, clock, lambda: sources.configurations.settings.lease_namespace or options.namespace
        ),
        surroundings.Surroundings(client, clock, lambda: sources.configurations.settings),
        clock=clock,
        configured=lambda: sources.configurations,
        may_act=may_act,
        own_node=options.node_name,
        report=report,
        ended=metrics.ended,
        dump_of=dumps.of,
    )

    async def lead() -> None:
        await records.install()
        await sources.ready.wait()
        await watch.synced()
        await controller.run()

    async def work() -> None:
        while True:
            try:
                await (lock.run(lead) if options.leader_elect else lead())
            except LockLost:  # another controller leads; this one waits for its turn
                continue

    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    try:
        async with AsyncExitStack() as stack:
            if options.metrics_address:
                await stack.enter_async_context(served(metrics, options.metrics_address))
            ended = await first_of(
                "remedy",
                stopped.wait(),
                sources.run(),
                watch.run(),
                events.run(),
                dumps.listen(options.kdump_port),
                work(),
            )
            for task in ended[1:]:
                if task is not None:
                    task.result()
    finally:
        await client.close()
    return 0
