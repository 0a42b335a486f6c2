"""`run_agent`: runs the agent in this process: process settings, signal handlers, and one error for a failed start.

start  plugins ─► `assemble` (lock, agent id, check for kubelets, components, state database) ─► `Assembly.run`
stop   `Assembly.run` is cancelled (servers, tasks, pod workers; containers and virtual machines continue to run)
       ─► the components are closed in reverse order: clients, threads, history, state database, lock
"""

from __future__ import annotations

import asyncio
import resource
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from kubeletx.api import KubeletxError, SystemClock, Unavailable
from kubeletx.kube.tls_buffers import begin_small
from kubeletx.plugins.foreign import load_agent_plugins
from kubeletx.plugins.loading import Plugins, log_plugins

from .assembly import assemble
from .config.tree import AgentConfig, ProcessSettings
from .host.identity import ID_FILE, forget_failed_start
from .host.slow_calls import watched_markers
from .lifecycle import Assembly
from .parts.root import DATABASE

log = structlog.get_logger(__name__)
OOM_SCORE = Path("/proc/self/oom_score_adj")


async def run_agent(
    config: AgentConfig, *, plugins: Plugins | None = None, on_signals: Callable[[], None] = lambda: None
) -> int:
    """Run the agent until SIGTERM or SIGINT; returns exit code 0.

    Raises InvalidConfig for a configuration that must be corrected, and Unavailable if the machine prevents the start.
    `plugins`: used instead of the installed plugins; None loads the installed ones. `on_signals`: called when the
    handlers of SIGTERM and SIGINT are set.
    """
    begin_small()
    began = time.monotonic()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    on_signals()
    for unused in config.unused:
        log.warning(
            "Setting has no effect",
            setting=unused.name,
            origin=unused.origin,
            value=unused.value,
            consequence=unused.consequence,
        )
    apply_process_settings(config.process)
    if config.edge.run_dir is not None:
        _show_stack(config.edge.run_dir)
    async with AsyncExitStack() as stack:
        root = config.root_dir
        if not (root / ID_FILE).exists():
            stack.callback(forget_failed_start, root, root / DATABASE, made_directory=not root.exists())
        plugins = plugins or await load_agent_plugins(
            config.plugins,
            markers=watched_markers(config.root_dir, config.plugins),
            sections=config.runtimes.plugins,
            origin=config.origins.get("runtimes.plugins", ""),
        )
        parts = await _built(stack, config, plugins)
        try:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(parts.run(began), name="agent")
                await stopping.wait()
                log.info("Stopping; pods keep running")
                task.cancel()
        except* KubeletxError as errors:
            raise _first(errors) from None
    log.info("Stopped")
    return 0


def _show_stack(run_dir: Path) -> None:
    """Let the guardian get the stacks of all threads, if the agent hangs."""
    from kubeletx.health.client import stack_on_signal

    try:
        stack_on_signal("kubeletx", run_dir)
    except OSError as error:
        log.warning("The guardian gets no stack of the agent", err=str(error))


async def _built(stack: AsyncExitStack, config: AgentConfig, plugins: Plugins) -> Assembly:
    """Build the agent; `stack` closes it. Raises Unavailable if the machine prevents it, such as by a full disk."""
    log_plugins(plugins)
    try:
        return await stack.enter_async_context(assemble(config, plugins=plugins, clock=SystemClock()))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Unavailable(f"cannot start: {where}{error.strerror or error}") from error


def _first(group: BaseExceptionGroup[KubeletxError]) -> KubeletxError:
    """Return the first error in a tree of exception groups."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def apply_process_settings(settings: ProcessSettings, oom_score: Path = OOM_SCORE) -> None:
    """Set the OOM score and the limit of open files of this process.

    OOM score None: not changed. Limit None: the soft limit becomes the hard one.

    If this user has no right to change a setting, a warning is logged, as in a kubelet. `oom_score`: the file in /proc.
    """
    if settings.oom_score_adj is not None:
        try:
            oom_score.write_text(f"{settings.oom_score_adj}\n")
        except OSError as error:
            log.warning("Failed to set oom_score_adj", value=settings.oom_score_adj, err=error.strerror)
    _raise_files(settings.max_open_files or None)


def _raise_files(number: int | None) -> None:
    """Set the soft and the hard limit of open files to `number`; None: raise the soft limit to the hard one.

    Without the right to set `number`, raise the soft limit as far as the hard limit permits, and log a warning.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if number is None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
    except (OSError, ValueError):
        reached = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (reached, hard))
        log.warning("Failed to raise the limit of open files", value=number, reached=reached)
