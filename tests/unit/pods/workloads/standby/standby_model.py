"""State and calls of the fake runtime ``one``, for tests of standby of containers and of machines."""

from __future__ import annotations

from kubeletx.api import UnitState
from kubeletx.kube.types.core import ExecAction, Lifecycle, LifecycleHandler
from kubeletx.pods.worker import PodWorker
from tests.unit.pods.manager_model import Node

HOOK = Lifecycle(pre_stop=LifecycleHandler(exec=ExecAction(command=("true",))))
ENDING = ("thaw", "exec_sync", "stop_unit")


def states(node: Node) -> set[UnitState]:
    return {unit.state for unit in node.runtimes["one"].backend.find_units({}) if unit.state.is_alive}


def is_in(node: Node, state: UnitState) -> bool:
    return states(node) == {state}


def count(node: Node, method: str) -> int:
    return node.runtimes["one"].counts[method]


def is_ready(node: Node, worker: PodWorker) -> bool:
    status = node.services.board.statuses[worker.uid]
    return any(one.type == "Ready" and one.status == "True" for one in status.conditions)


def ending(node: Node) -> list[str]:
    """The calls that end a pod, in order, in the last life of the agent."""
    return [one.method for one in node.runtimes["one"].journal if one.method in ENDING]
