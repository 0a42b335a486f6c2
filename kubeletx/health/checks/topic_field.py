"""One field of a status topic of any agent, for checks and contact sources. The file is JSON; writing it again is a sign of life."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeletx.linux.files import read_regular

from ..topics import MAX_BYTES

TopicWords = tuple[str | int | bool, ...]
"""Values of a field, such as ``[up, 1, true]``."""
_TOPIC: Final = re.compile(r"[^/.\0][^/\0]*(/[^/.\0][^/\0]*){2}")


def validate_topic(topic: str) -> None:
    """Raises ValueError unless it is AGENT/TOPIC/KEY."""
    if not _TOPIC.fullmatch(topic):
        raise ValueError(f"topic {topic[:80]!r} is not AGENT/TOPIC/KEY")


def topic_file(run: Path, topic: str) -> Path:
    """Return the file of a topic AGENT/TOPIC/KEY."""
    return run / f"{topic}.json"


def read_field(path: Path, field: str) -> Any:
    """Return the value at a dotted path, such as ``Port.State``. Raises OSError, and ValueError if it is not there."""
    try:
        value = msgspec.json.decode(read_regular(path, MAX_BYTES))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            raise ValueError(f"{path}: there is no field {field}")
        value = value[name]
    return value


def is_among(value: Any, words: TopicWords) -> bool:
    """Return True if a value is one of these; 1 is not true here."""
    return any(type(value) is type(word) and value == word for word in words)
