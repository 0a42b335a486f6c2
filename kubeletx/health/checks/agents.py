"""Checks of agents: signs of life, runtimes and pods of kubeletx, checks of its plugins, and status topics of any agent."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from kubeletx.linux.files import stamp_of

from ..topics import KubeletxStatus, TopicWords, is_among, read_field, validate_topic
from ..watchdog.ages import WatchLevel
from .base import CheckOutcome, LookFacts, NodeCheck

_SILENT_SECONDS: Final = 60
"""The node agent writes its status every 10 s."""


class WatchedAgentsCheck(NodeCheck, frozen=True, kw_only=True, tag="watched-agents"):
    """Registered agents give signs of life. `agents`: names that have to be registered; empty: all that are."""

    agents: tuple[str, ...] = ()

    def look(self, facts: LookFacts) -> CheckOutcome:
        watched = {key.partition("/")[2]: agent for key, agent in sorted(facts.watched.items())}
        names = self.agents or tuple(watched)
        problems = [f"{name} is not registered" for name in names if name not in watched]
        for name in names:
            agent = watched.get(name)
            if agent is not None and agent.level in {WatchLevel.ERROR, WatchLevel.HIT}:
                problems.append(f"{name} gave no sign for {facts.now - agent.since} s")
        return CheckOutcome(not problems, "; ".join(problems) or f"{len(names)} agents give signs of life")


def _silence(facts: LookFacts) -> str:
    if facts.agent is None:
        return "kubeletx has not published KubeletxStatus"
    silent = facts.agent_silent > _SILENT_SECONDS
    return f"kubeletx has not written KubeletxStatus for {facts.agent_silent} s" if silent else ""


class RuntimesCheck(NodeCheck, frozen=True, kw_only=True, tag="runtimes"):
    """Kubeletx runs, and all its runtimes are ready."""

    def look(self, facts: LookFacts) -> CheckOutcome:
        agent = facts.agent or KubeletxStatus()
        problems = [f"{name} is not ready" for name in agent.runtimes_not_ready]
        message = _silence(facts) or "; ".join(problems)
        return CheckOutcome(not message, message or "all are ready")


class PodsCheck(NodeCheck, frozen=True, kw_only=True, tag="pods"):
    """Pods are Ready. `pods`: patterns of ``NAMESPACE/NAME``; each has a pod, and all its pods are ready. Empty: all pods."""

    pods: tuple[str, ...] = ()

    def look(self, facts: LookFacts) -> CheckOutcome:
        if problem := _silence(facts):
            return CheckOutcome(False, problem)
        agent = facts.agent or KubeletxStatus()
        bad = [pod for pod in agent.pods_not_ready if _matches(pod, self.pods or ("*",))]
        there = (*agent.pods_ready, *bad)
        problems = [f"{pod} is not ready" for pod in bad]
        problems += [f"{p} is not there" for p in self.pods if not any(_matches(pod, (p,)) for pod in there)]
        return CheckOutcome(not problems, "; ".join(problems) or "all are ready")


def _matches(pod: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(pod, pattern) for pattern in patterns)


class PluginCheck(NodeCheck, frozen=True, kw_only=True, tag="plugin"):
    """Result of a plugin's check in kubeletx (hook kubeletx_register_health_checks). `check`: its name there."""

    check: str

    def look(self, facts: LookFacts) -> CheckOutcome:
        if problem := _silence(facts):
            return CheckOutcome(None, problem)
        agent = facts.agent or KubeletxStatus()
        for result in agent.checks:
            if result.name == self.check:
                return CheckOutcome(result.ok, result.message)
        return CheckOutcome(None, f"kubeletx has no check {self.check}")


class AgentStatusCheck(NodeCheck, frozen=True, kw_only=True, tag="topic"):
    """Basic function of an agent: a field of its status topic AGENT/TOPIC/KEY has one of the values `good`.

    `fresh`: seconds of ticks after which a topic that was not written again fails; 0: a topic stays good.
    """

    topic: str
    field: str
    good: TopicWords
    fresh: int = 0

    def __post_init__(self) -> None:
        validate_topic(self.topic)

    def look(self, facts: LookFacts) -> CheckOutcome:
        path = facts.run / f"{self.topic}.json"
        stamp = stamp_of(path)
        if stamp is None:
            return CheckOutcome(False, f"{path} does not exist")
        before, counters = facts.before, {"inode": stamp[0], "time": stamp[1], "since": facts.now}
        if (before.get("inode"), before.get("time")) == stamp:
            counters["since"] = before["since"]
        silent = facts.now - counters["since"]
        if self.fresh and silent > self.fresh:
            return CheckOutcome(False, f"{path} was not written for {silent} s", counters)
        try:
            value = read_field(path, self.field)
        except (OSError, ValueError) as error:
            return CheckOutcome(None, str(error), counters)
        return CheckOutcome(is_among(value, self.good), f"{self.field} is {str(value)[:60]}", counters)
