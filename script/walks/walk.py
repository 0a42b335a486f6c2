"""One newcomer: a directory, a shell in which `kubeletx` is the command of a private agent, and a clock."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kubeletx_testing.lab import Lab, LabError, PrivateAgent, image_ref
from kubeletx_testing.lab.process import run

from .quickstart import ROOT, Step

LIMIT_SECONDS = 300
_PROGRAM = Path(sys.executable).with_name("kubeletx")
_NODE = "lab"


class Walk:
    """A walk of the lab. `program`: the command that `kubeletx` runs. `replaced`: what the lab has instead of a text
    of a page, such as an image of the internet. `seconds`: from the first command to the first success."""

    def __init__(self, lab: Lab, name: str, say: Callable[[str], None]) -> None:
        self.lab = lab
        self.name = name
        self.say = say
        self.directory = lab.base_dir / name
        self.program = _PROGRAM
        self.endpoint = next(iter(lab.containerds.values())).endpoint
        self.replaced = {
            "docker.io/library/busybox:1.36": image_ref("busybox"),
            "unix:///run/containerd/containerd.sock": self.endpoint,
        }
        self.seconds: float | None = None
        self._began = time.monotonic()
        self.directory.mkdir()

    def begin(self) -> None:
        """Start the clock: what the newcomer has at hand is there."""
        self._began = time.monotonic()

    def run(self, line: str) -> str:
        """Run a line in a shell and return what it prints. Raises LabError if it fails, or when the time is over."""
        left = max(1.0, LIMIT_SECONDS - self._elapsed())
        environment = self._shell(line)
        return run("sh", "-ec", self._here(line), cwd=self.directory, env=environment, timeout_seconds=left)

    def type(self, line: str, typed: str, answer: str) -> None:
        """Run a command with a console, type there until it answers, and leave it. Raises LabError without answer."""
        with subprocess.Popen(
            ["sh", "-ec", f"exec {line}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.directory,
            env=self._shell(line),
            start_new_session=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                os.set_blocking(process.stdout.fileno(), False)
                seen = b""
                while answer.encode() not in seen:
                    if self._elapsed() > LIMIT_SECONDS or process.poll() is not None:
                        raise LabError(f"{line}: no {answer!r}:\n{seen.decode(errors='replace')}")
                    process.stdin.write(typed.encode())
                    process.stdin.flush()
                    select.select([process.stdout], [], [], 1)
                    seen += process.stdout.read() or b""
            finally:
                process.kill()

    def _shell(self, line: str) -> dict[str, str]:
        """Print the line, and return the environment of its shell, in which `kubeletx` is the walk's."""
        self.say(f"{self._elapsed():5.1f} s  # {line}")
        wrapper = self.directory / "bin" / "kubeletx"
        wrapper.parent.mkdir(exist_ok=True)
        wrapper.write_text(f'#!/bin/sh\nexec {self.program} --root-dir={self.root_dir} "$@"\n')
        wrapper.chmod(0o755)
        return {
            **os.environ,
            "PATH": f"{wrapper.parent}:{os.environ['PATH']}",
            "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        }

    def follow(self, step: Step) -> str:
        """Do a step of the quickstart as written, and return what its commands print."""
        for name, text in step.files.items():
            (self.directory / name).write_text(self._here(text))
        return "".join(self.run(line) for line in step.commands)

    def expect(self, text: str, output: str) -> None:
        """Raise LabError unless the output has the text."""
        if text not in output:
            raise LabError(f"{self.name}: {text!r} is not in the output:\n{output}")

    def succeed(self, what: str) -> None:
        """Note the first success."""
        self.seconds = self._elapsed()
        self.say(f"{self.seconds:5.1f} s  first success: {what}")

    @contextmanager
    def agent(
        self, *flags: str, endpoints: Sequence[str] | None = (), node_name: str = _NODE
    ) -> Iterator[PrivateAgent]:
        """Run an agent of `program` during the block. `endpoints`: beside containerd's; None: the
        settings have all. At the end its pods are deleted."""
        self.say(f"{self._elapsed():5.1f} s  the agent starts")
        agent = _Agent(
            self.lab,
            name=f"{self.name}-agent",
            node_name=node_name,
            endpoints=";".join([f"container:containerd:{self.endpoint}", *(endpoints or ())]),
            flags=flags,
        )
        agent.program = self.program
        agent.has_settings = endpoints is None
        try:
            agent.start()
            yield agent
        except LabError as error:
            raise LabError(f"{error}\nlast lines of the agent's log:\n{agent.log_tail(20)}") from error
        finally:
            if agent.is_running:
                agent.cli("delete", "pods", "--all", "--now")
            agent.stop()
            agent.remove_files()

    @property
    def root_dir(self) -> Path:
        """Root directory of the walk's agent."""
        return self.lab.base_dir / f"{self.name}-agent"

    def _here(self, text: str) -> str:
        for there, here in self.replaced.items():
            text = text.replace(there, here)
        return text

    def _elapsed(self) -> float:
        return time.monotonic() - self._began


class _Agent(PrivateAgent):
    """An agent of another environment than this one. `has_settings`: its settings name the runtimes."""

    program = _PROGRAM
    has_settings = False

    def argv(self) -> list[str]:
        flags = super().argv()[1:]
        if self.has_settings:
            flags = [flag for flag in flags if not flag.startswith("--container-runtime-endpoint=")]
        return [str(self.program), *flags]
