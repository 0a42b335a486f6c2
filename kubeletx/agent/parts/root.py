"""Component of the agent: the root directory with its lock, the agent id and the state database."""

from __future__ import annotations

import os
from functools import partial

import msgspec

from kubeletx.api import Clock
from kubeletx.plugins.loading import Plugins
from kubeletx.store import Store

from ..config.tree import AgentConfig
from ..host.files import make_directory
from ..host.identity import ensure_agent_id, lock_root
from ..host.readings import HostReadings, read_host
from .part import Part, PartContext

DATABASE = "kubeletx.db"


class RootAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """Component built by `make_root`, the first factory: the locked root directory.

    `ctx`: input of all other factories; its store is not open yet.
    """

    part: Part
    ctx: PartContext


def make_root(config: AgentConfig, plugins: Plugins, clock: Clock, host: HostReadings | None) -> RootAssembly:
    """Lock the root directory for this process, and read the agent id and the state of the machine.

    Raises InvalidConfig if another agent holds the lock or the directory is unusable. `host`: state of the machine;
    None reads it from this machine.
    """
    lock = lock_root(config.root_dir)
    try:
        agent_id, was_here = ensure_agent_id(config.root_dir)
        make_directory(config.logs.pod_logs_dir, "--pod-logs-dir")
        host = host or read_host()
    except BaseException:
        os.close(lock)
        raise
    store = Store(config.root_dir / DATABASE, expected=was_here)
    return RootAssembly(
        part=Part(name="root", close=(partial(os.close, lock), store.close)),
        ctx=PartContext(
            config=config, plugins=plugins, clock=clock, host=host, agent_id=agent_id, store=store
        ),
    )
