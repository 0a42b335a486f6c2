"""The root directory: its lock, the agent id and the state database."""

from __future__ import annotations

import os
from functools import partial

import msgspec

from kubeletx.store import Store

from ..config.tree import AgentConfig
from ..host.files import make_directory
from ..host.identity import ensure_agent_id, lock_root
from .part import Part

DATABASE = "kubeletx.db"


class RootRoom(msgspec.Struct, frozen=True, kw_only=True):
    """`store`: not open yet."""

    part: Part
    agent_id: str
    store: Store


def make_root(config: AgentConfig) -> RootRoom:
    """Take the root directory for this process. Raises InvalidConfig when another agent has it or it cannot be used."""
    lock = lock_root(config.root_dir)
    try:
        agent_id, was_here = ensure_agent_id(config.root_dir)
        make_directory(config.logs.pod_logs_dir, "--pod-logs-dir")
    except BaseException:
        os.close(lock)
        raise
    store = Store(config.root_dir / DATABASE, expected=was_here)
    part = Part(name="root", close=(partial(os.close, lock), store.close))
    return RootRoom(part=part, agent_id=agent_id, store=store)
