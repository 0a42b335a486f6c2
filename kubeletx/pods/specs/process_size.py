"""Size of a container's arguments and environment, refused where the kernel would refuse it.

References can double a value with every variable: a manifest of a kilobyte could expand to gigabytes. Nothing larger
than execve(2) accepts is built, so that no pod can fill the agent's memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kubeletx.kube.text.expansion import MAX_STRING_BYTES, MAX_TOTAL_BYTES, TooLong, expand, size_of

from ..model.spec_errors import ContainerConfigError

_FIX: Final = "shorten it, or write it to a file in a volume"


class ProcessSize:
    """Counts the bytes of one container's variables, command and arguments.

    Its methods raise InvalidPod (CreateContainerConfigError) above the kernel's limits.
    """

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        """`variables`: an environment whose variables are known to be short enough, counted from the start."""
        self._variables = {name: _entry_size(name, value) for name, value in (variables or {}).items()}
        self._bytes = sum(self._variables.values())

    def variable(self, name: str, value: str, field: str) -> None:
        """Count a variable; it replaces one of the same name."""
        size = _entry_size(name, value)
        if size > MAX_STRING_BYTES:
            problem = f"variable {name!r} has {size} bytes, and a program takes at most {MAX_STRING_BYTES}"
            raise ContainerConfigError(field=field, problem=problem, fix=_FIX)
        self._add(size - self._variables.get(name, 0), field)
        self._variables[name] = size

    def words(self, words: Iterable[str], variables: Mapping[str, str], field: str) -> tuple[str, ...]:
        """Replace the references in a command or in arguments, and count the result."""
        found = []
        for index, word in enumerate(words):
            text = self.expanded(word, variables, f"{field}[{index}]")
            self._add(size_of(text) + 1, field)
            found.append(text)
        return tuple(found)

    @staticmethod
    def expanded(text: str, variables: Mapping[str, str], field: str) -> str:
        """Replace the references in `text`, without counting the result."""
        try:
            return expand(text, variables)
        except TooLong as err:
            problem = f"{err} with its $(NAME) references replaced, and a program takes no longer text"
            raise ContainerConfigError(field=field, problem=problem, fix=_FIX) from err

    def _add(self, size: int, field: str) -> None:
        self._bytes += size
        if self._bytes > MAX_TOTAL_BYTES:
            raise ContainerConfigError(
                field=field,
                problem=f"command, arguments and variables up to here have more than {MAX_TOTAL_BYTES} bytes together",
                fix="shorten them, or write them to files in a volume",
            )


def _entry_size(name: str, value: str) -> int:
    return size_of(name) + size_of(value) + len("=\0")
