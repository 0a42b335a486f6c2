"""Methods of fence agents: power, fabric and cloud devices, reached by the programs of Debian's ``fence-agents``.

    off     ─► status ─► off: done, proven
    on      ─► status ─► on: done
    reboot  ─► status ─► off: proven; on once more
    repeat: status first; what is already so is done; a reboot that may have happened is unknown

`FenceMethod.proof` is what success would prove. An agent's exit code alone proves nothing: success of ``off`` counts when a second ``status`` says off, and a
reboot counts when the agent verifies off (not with ``method=cycle``) and the device answers afterwards. An agent
that was stopped at the deadline, or lost its connection, may have acted: unknown. A controller that ends does not end
its agent, but ``timeout`` does at the deadline, so that the next controller knows when it no longer acts.
"""

from __future__ import annotations

import asyncio
import enum
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.api.errors import KubeletxError, NotFound, TimedOut
from kubeletx.linux.programs import Ending, ProgramResult, run_program, tool_environment

from ..model import FenceMethod, FenceProof, MethodResult, RemedyOutcome, RemedyTask
from .agent_metadata import TRUE, AgentMetadata, parse_metadata, standard_input
from .credentials import Credentials, KeyFetcher, SecretReader, credentials_of, fetch_key, no_secrets

AGENTS_DIRECTORY: Final = Path("/usr/sbin")
METADATA_SECONDS: Final = 30.0
MOST_OUTPUT: Final = 256 * 1024
STATUS_TRIES: Final = 3
STATUS_PAUSE: Final = 2.0
_LONGEST_CAUSE: Final = 300
_ENDING: Final = Ending(survives_cancellation=True, ends_group=True, most_bytes=MOST_OUTPUT)
_MARGIN: Final = 1.0
"""Seconds by which ``timeout`` comes after the deadline; it ends only agents of controllers that are gone."""
_LOG_PREFIX: Final = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ [A-Z]+: ")
_USELESS: Final = re.compile(r"^(Please use '-h' for usage|)$")
_UNSURE: Final = re.compile(r"connection lost|timed out|timeout", re.IGNORECASE)
_UNSURE_CODES: Final = frozenset({4, 5, 6, 7})
_SAYS_DUMPING: Final = frozenset({"fence_kdump"})
"""Success means that the node runs its crash kernel, hence no pod."""


class _Power(enum.Enum):
    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


class FenceAgents:
    """Carries out methods of kind ``agent``. Reads the metadata of each agent once."""

    def __init__(
        self,
        *,
        directory: Path = AGENTS_DIRECTORY,
        read_secret: SecretReader = no_secrets,
        fetch: KeyFetcher = fetch_key,
        pause_seconds: float = STATUS_PAUSE,
    ) -> None:
        """`directory`: of the agents. `pause_seconds`: between questions for a status that is not answered."""
        self._directory = directory
        self._read_secret = read_secret
        self._fetch = fetch
        self._pause = pause_seconds
        self._known: dict[tuple[str, int, int], AgentMetadata] = {}

    async def run(self, task: RemedyTask) -> RemedyOutcome:
        """Carry out the method within `FenceMethod.seconds`. A problem before anything acts is FAILED; of a repeat: UNKNOWN."""
        deadline = asyncio.get_running_loop().time() + task.method.seconds
        clean: Callable[[str], str] = str
        try:
            async with (
                asyncio.timeout_at(deadline) as limit,
                credentials_of(task.method, self._read_secret, self._fetch) as credentials,
            ):
                clean = credentials.redactor.clean
                device = await self._device(task.method, credentials, deadline)
                limit.reschedule(None)  # from here on the deadline is of the agent's process
                outcome = await self._carry_out(device, task)
        except TimeoutError:
            outcome = _before(task, f"nothing began within {task.method.seconds:g} s")
        except (KubeletxError, OSError) as error:
            outcome = _before(task, str(error))
        return msgspec.structs.replace(outcome, message=f"{task.method.agent}: {clean(outcome.message)}")

    async def metadata(self, agent: str, seconds: float = METADATA_SECONDS) -> AgentMetadata:
        """Return an agent's metadata. Raises NotFound, InvalidConfig, TimedOut and OSError."""
        path = self._path(agent)
        stamp = path.stat()
        key = (path.name, stamp.st_ino, stamp.st_mtime_ns)
        if key not in self._known:
            result = await _start(path, standard_input("metadata"), min(seconds, METADATA_SECONDS))
            self._known[key] = parse_metadata(path.name, result.stdout)
        return self._known[key]

    def _path(self, agent: str) -> Path:
        path = self._directory / agent.replace("-", "_")
        if (
            not agent.startswith("fence")
            or "/" in agent
            or not path.is_file()
            or not os.access(path, os.X_OK)
        ):
            fix = "correct agent= of the method, or install Debian's fence-agents"
            raise NotFound(f"{self._directory}: no fence agent {agent!r}; {fix}")
        return path

    async def _device(self, method: FenceMethod, credentials: Credentials, deadline: float) -> _Device:
        left = deadline - asyncio.get_running_loop().time()
        metadata = await self.metadata(method.agent, left)
        action = metadata.action(credentials.parameters)
        arguments, ignored = metadata.arguments(credentials.parameters)
        return _Device(
            path=self._path(method.agent),
            metadata=metadata,
            action=action,
            arguments=arguments,
            ignored=ignored,
            proof=method.proof,
            deadline=deadline,
        )

    async def _carry_out(self, device: _Device, task: RemedyTask) -> RemedyOutcome:
        if task.is_repeat and (outcome := await self._already(device, task)) is not None:
            return outcome
        match device.action:
            case "off":
                return await self._off(device)
            case "on":
                return await self._on(device)
            case "reboot":
                return await self._reboot(device)
            case "status":
                power, text = await self._ask(device)
                result = MethodResult.UNKNOWN if power is _Power.UNKNOWN else MethodResult.DONE
                return device.outcome(result, text, proves=power is _Power.OFF)
            case action:
                answer = await device.do(action)
                return device.outcome(
                    MethodResult.DONE if answer.is_done else MethodResult.FAILED, answer.text
                )

    async def _already(self, device: _Device, task: RemedyTask) -> RemedyOutcome | None:
        """Return the outcome of a method that an earlier controller may have begun; None: it has not acted."""
        was, now = task.fence.flow.boot_id, task.node.status.node_info.boot_id
        if device.action == "reboot" and was and now and was != now and not device.is_fabric:
            return device.outcome(MethodResult.DONE, f"the node has a new boot ID, {now}", proves=True)
        if device.action not in ("off", "on", "reboot"):
            return None
        power, text = await self._ask(device)
        if power is _Power.UNKNOWN:
            return device.outcome(MethodResult.UNKNOWN, f"may have acted before: {text}")
        if device.action == power.value:
            return device.outcome(MethodResult.DONE, f"already {power.value}", proves=power is _Power.OFF)
        if device.action != "reboot":
            return None
        if power is _Power.OFF:
            return await self._back_on(device)
        return device.outcome(MethodResult.UNKNOWN, "a reboot may have happened before: the device is on")

    async def _off(self, device: _Device) -> RemedyOutcome:
        answer = await device.do("off")
        if not device.metadata.has_status:
            return device.outcome(answer.result, answer.text, proves=answer.is_done)
        if answer.is_late:
            return device.outcome(MethodResult.UNKNOWN, answer.text)
        power, text = await self._ask(device)
        if power is _Power.OFF:
            return device.outcome(MethodResult.DONE, "off, verified by status", proves=True)
        if power is _Power.UNKNOWN:
            return device.outcome(MethodResult.UNKNOWN, f"off: {answer.text}; {text}")
        return device.outcome(MethodResult.FAILED, f"off: {answer.text}; the device is on")

    async def _on(self, device: _Device) -> RemedyOutcome:
        answer = await device.do("on")
        if not answer.is_done or not device.metadata.has_status:
            return device.outcome(answer.result, answer.text)
        power, text = await self._ask(device)
        result = {
            _Power.ON: MethodResult.DONE,
            _Power.OFF: MethodResult.FAILED,
            _Power.UNKNOWN: MethodResult.UNKNOWN,
        }[power]
        return device.outcome(result, f"on: {answer.text}; {text}")

    async def _reboot(self, device: _Device) -> RemedyOutcome:
        answer = await device.do("reboot")
        if answer.is_late or not device.metadata.has_status:
            return device.outcome(answer.result, answer.text)
        power, text = await self._ask(device)
        if power is _Power.OFF:
            return await self._back_on(device)
        if not answer.is_done:
            return device.outcome(answer.result, f"reboot: {answer.text}; {text}")
        if power is _Power.UNKNOWN:
            return device.outcome(MethodResult.UNKNOWN, f"reboot: {answer.text}; {text}")
        if device.cycles:
            return device.outcome(MethodResult.DONE, "rebooted; off is not verified with method=cycle")
        return device.outcome(MethodResult.DONE, "rebooted; the agent verified off", proves=True)

    async def _back_on(self, device: _Device) -> RemedyOutcome:
        """Switch on a device that was found off: after a reboot, agents report success even if it stays off."""
        outcome = await self._on(device)
        ending = (
            "and on again" if outcome.result is MethodResult.DONE else f"and stays off: {outcome.message}"
        )
        return device.outcome(MethodResult.DONE, f"was off, verified by status, {ending}", proves=True)

    async def _ask(self, device: _Device) -> tuple[_Power, str]:
        power, text = _Power.UNKNOWN, "the agent has no action status"
        for attempt in range(STATUS_TRIES if device.metadata.has_status else 0):
            if attempt:
                await asyncio.sleep(self._pause)
            power, text = await device.ask()
            if power is not _Power.UNKNOWN:
                break
        return power, text


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of an agent. `result` UNKNOWN: it may have acted. `is_late`: it was stopped at the deadline."""

    result: MethodResult
    text: str
    is_late: bool = False

    @property
    def is_done(self) -> bool:
        return self.result is MethodResult.DONE


class _Device(msgspec.Struct, frozen=True, kw_only=True):
    """The device of one method. `deadline`: by the event loop's clock. `proof`: what the method's success proves."""

    path: Path
    metadata: AgentMetadata
    action: str
    arguments: dict[str, str]
    ignored: tuple[str, ...]
    proof: FenceProof
    deadline: float

    @property
    def is_fabric(self) -> bool:
        network_only = self.arguments.get("network_fencing", "").lower() in TRUE  # fence_azure_arm
        return self.metadata.is_fabric or network_only

    @property
    def cycles(self) -> bool:
        return (self.arguments.get("method") or self.metadata.default("method")).lower() == "cycle"

    def outcome(self, result: MethodResult, text: str, *, proves: bool = False) -> RemedyOutcome:
        """Return the outcome. `proves`: the device is off, as far as its agent can know."""
        if self.ignored:
            text = f"{text} (the agent ignores {', '.join(self.ignored)})"
        return RemedyOutcome(result=result, message=text, proofs=self._proofs() if proves else ())

    def _proofs(self) -> tuple[FenceProof, ...]:
        """Return what success proves: the method's proof, but POWER only if the agent can know that the node was off."""
        if self.proof is FenceProof.POWER and self.path.name not in _SAYS_DUMPING:
            is_known = self.metadata.has_status and not self.is_fabric
            return (self.proof,) if is_known else ()
        return () if self.proof is FenceProof.NONE else (self.proof,)

    async def do(self, action: str) -> _Answer:
        """Run an action that changes the device."""
        try:
            result = await self._run(action)
        except TimedOut as error:
            return _Answer(result=MethodResult.UNKNOWN, text=f"{action}: {error}", is_late=True)
        except OSError as error:
            return _Answer(result=MethodResult.FAILED, text=f"{action}: {error.strerror}")
        if result.exit_code == 0:
            return _Answer(result=MethodResult.DONE, text=_cause(result))
        text = f"exit status {result.exit_code}: {_cause(result)}"
        was_killed = not 0 <= result.exit_code < 128
        unsure = was_killed or result.exit_code in _UNSURE_CODES or _UNSURE.search(text)
        return _Answer(result=MethodResult.UNKNOWN if unsure else MethodResult.FAILED, text=text)

    async def ask(self) -> tuple[_Power, str]:
        """Return the status, and a sentence about it.

        Exit code 2 is also that of a script with a syntax error: it counts if the output says off, or nothing.
        """
        try:
            result = await self._run("status")
        except (TimedOut, OSError) as error:
            return _Power.UNKNOWN, f"status: {error}"
        says = {word.lower() for word in re.findall(r"\b(?:on|off)\b", result.out, re.IGNORECASE)}
        if result.exit_code == 0 and "off" not in says:
            return _Power.ON, "status is on"
        is_silent = not (result.stdout.strip() or result.stderr.strip())
        if result.exit_code == 2 and (says == {"off"} or is_silent):
            return _Power.OFF, "status is off"
        return _Power.UNKNOWN, f"status is unknown: exit status {result.exit_code}: {_cause(result)}"

    async def _run(self, action: str) -> ProgramResult:
        left = self.deadline - asyncio.get_running_loop().time()
        if left <= 0:
            raise TimedOut(f"{self.path.name}: no time is left for {action}")
        return await _start(self.path, standard_input(action, self.arguments), left)


async def _start(path: Path, stdin: bytes, seconds: float) -> ProgramResult:
    argv = ["timeout", "--signal=KILL", f"{seconds + _MARGIN:.3f}", str(path)]
    return await run_program(
        argv, seconds=seconds, stdin=stdin, environment=tool_environment(), ending=_ENDING, name=path.name
    )


def _cause(result: ProgramResult) -> str:
    """Return what an agent said, as one line: errors without the time and level of its log, or else its output."""
    text = (result.stderr.strip(b"\0\r\n\t ") or result.stdout).decode(errors="replace")
    lines = (_LOG_PREFIX.sub("", line.strip()) for line in text.split("\n"))
    said = dict.fromkeys(line for line in lines if not _USELESS.match(line))
    return "; ".join(said)[:_LONGEST_CAUSE] or "it said nothing"


def _before(task: RemedyTask, problem: str) -> RemedyOutcome:
    if task.is_repeat:
        return RemedyOutcome(result=MethodResult.UNKNOWN, message=f"may have acted before: {problem}")
    return RemedyOutcome(result=MethodResult.FAILED, message=problem)
