"""Limits the size of a container's arguments and environment to what execve(2) accepts.

With ``$(NAME)`` references each variable can be twice as long as the one before, so a manifest of a kilobyte could
expand to gigabytes. The limit prevents that a pod fills the agent's memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kubeletx.kube.text.expansion import MAX_STRING_BYTES, MAX_TOTAL_BYTES, TooLong, expand, size_of

from ..model.spec_errors import ContainerConfigError

_FIX: Final = "shorten it, or write it to a file in a volume"


class ProcessSize:
    """Counts the bytes of one container's variables, command and arguments, and replaces ``$(NAME)`` references.

    All methods raise InvalidPod (CreateContainerConfigError) if a text or the total exceeds the kernel's limit.
    `field`: path in the manifest for the error message.
    """

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        """`variables`: an environment that was already checked; its size counts towards the total."""
        self._variables = {name: _entry_size(name, value) for name, value in (variables or {}).items()}
        self._bytes = sum(self._variables.values())

    def variable(self, name: str, value: str, field: str) -> None:
        """Count a variable, in place of an earlier one with the same name."""
        size = _entry_size(name, value)
        if size > MAX_STRING_BYTES:
            problem = f"variable {name!r} has {size} bytes, and a program takes at most {MAX_STRING_BYTES}"
            raise ContainerConfigError(field=field, problem=problem, fix=_FIX)
        self._add(size - self._variables.get(name, 0), field)
        self._variables[name] = size

    def words(self, words: Iterable[str], variables: Mapping[str, str], field: str) -> tuple[str, ...]:
        """Return the words of a command or arguments with ``$(NAME)`` references replaced, and count their size."""
        expanded = []
        for index, word in enumerate(words):
            text = self.expanded(word, variables, f"{field}[{index}]")
            self._add(size_of(text) + 1, field)
            expanded.append(text)
        return tuple(expanded)

    @staticmethod
    def expanded(text: str, variables: Mapping[str, str], field: str) -> str:
        """Return `text` with ``$(NAME)`` references replaced. The result is not counted."""
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
