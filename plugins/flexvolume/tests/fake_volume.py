"""A double of what runs programs for one volume: results by program, and a mount table that tests write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubeletx.linux.mounts import MountPoint, find_mount, parse_mounts
from kubeletx.linux.programs import ProgramResult


class FakeVolume:
    """Implements `VolumePrograms`. Programs succeed without output unless `answer` says otherwise."""

    volume = "pv"

    def __init__(self) -> None:
        self.ran: list[str] = []
        """Programs that were run, with their arguments; the probe as "probe"."""
        self.mounts: list[MountPoint] = []
        self._answers: dict[str, tuple[ProgramResult, Callable[[], object]]] = {}

    def answer(
        self, program: str, out: str = "", *, code: int = 0, err: str = "", then: Callable[[], object] = list
    ) -> None:
        """Set the result of a program. `then`: called when it runs, such as to change the mounts."""
        self._answers[program] = (
            ProgramResult(name=program, exit_code=code, stdout=out.encode(), stderr=err.encode()),
            then,
        )

    def show(self, *lines: str) -> None:
        """Replace the mount table by lines of mountinfo."""
        self.mounts[:] = parse_mounts("\n".join(lines))

    def add(self, line: str) -> None:
        self.mounts.extend(parse_mounts(line))

    async def run(self, command: Sequence[str], seconds: float) -> ProgramResult:
        assert seconds > 0
        self.ran.append(" ".join(command))
        result, then = self._answers.get(command[0], (ProgramResult(name=command[0], exit_code=0), list))
        then()
        return result

    async def probe(self, device: str, *, is_interrupted: bool) -> ProgramResult:
        return await self.run(["probe", device, *(["interrupted"] if is_interrupted else [])], 1)

    async def find_mount(self, path: str) -> MountPoint | None:
        return find_mount(self.mounts, path)
