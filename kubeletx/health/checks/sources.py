"""Section ``contact``: sources of contact with the controller. Some topics are read without it, see `inbox`.

`urls` are asked by the guardian, `topics` are status topics of other agents. Each source reports how the controller was reached;
its freshness is the matter of `contact.merge`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from kubeletx.linux.files import stamp_of

from ..background import Background
from ..config import convert, read_entries
from ..model import Complain, Reach
from ..topics import TopicWords, is_among, read_field, validate_topic
from .http_get import get, validate_url

_T = TypeVar("_T")


class ContactUrl(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server that is asked. `period`: seconds of ticks; `deadline`: real seconds; `ca`: see `validate_url`."""

    url: str
    ca: str = ""
    period: Annotated[int, Meta(ge=10, le=120)] = 60
    deadline: Annotated[float, Meta(ge=0.1, le=60)] = 10.0

    def __post_init__(self) -> None:
        validate_url(self.url, self.ca)


class ContactTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field of a topic AGENT/TOPIC/KEY. `good`: values that mean success; `temporary`: trouble of the controller itself."""

    topic: str
    field: str
    good: TopicWords
    temporary: TopicWords = ()

    def __post_init__(self) -> None:
        validate_topic(self.topic)

    def reach(self, path: Path) -> Reach:
        value = read_field(path, self.field)
        if is_among(value, self.temporary):
            return Reach.TEMPORARY_FAIL
        return Reach.SUCCESS if is_among(value, self.good) else Reach.FAIL


class ContactSources:
    """All sources of section ``contact``."""

    def __init__(self, run: Path, section: Any, report: Callable[[str, str], object]) -> None:
        def complain(line: str) -> None:
            report("BadContact", line)

        if section is not None and not isinstance(section, dict):
            complain(
                f"contact: urls and topics are expected, found {str(section)[:40]!r}; no source is added"
            )
            section = None
        section = section or {}
        for name in section.keys() - {"urls", "topics"}:
            complain(f"contact.{name}: unknown; urls and topics can be set")
        self._urls = _read_sources(section, "urls", ContactUrl, complain)
        self._topics = _read_sources(section, "topics", ContactTopic, complain)
        self._run, self._report = run, report
        self.background: Background[tuple[Reach, str]] = Background()
        self._asked: dict[str, int] = {}
        self._stamps: dict[str, tuple[int, int] | None] = {}

    def tick(self, now: int, receive: Callable[..., None]) -> None:
        """Pass the answers of the sources to `receive` (`Inbox.receive`), and ask each source that is due."""
        for name, answer in self.background.results().items():
            reach, line = answer or (Reach.FAIL, f"{name}: no answer within its deadline")
            if reach is not Reach.SUCCESS:
                self._report("ContactSource", line)
            receive(name, reach, now)
        for url in self._urls:
            if now >= self._asked.get(url.url, now):
                self._asked[url.url] = now + url.period
                self.background.start(url.url, partial(get, url.url, url.deadline, url.ca), url.deadline)
        for source in self._topics:
            path = self._run / f"{source.topic}.json"
            stamp, is_old = stamp_of(path), source.topic not in self._stamps
            if stamp is not None and stamp != self._stamps.get(source.topic):
                try:
                    receive(source.topic, source.reach(path), now, is_old=is_old)
                except (OSError, ValueError) as error:
                    self._report("ContactSource", f"{error}; its last report counts")
            self._stamps[source.topic] = stamp


def _read_sources(section: dict[str, Any], name: str, kind: type[_T], complain: Complain) -> list[_T]:
    sources: list[_T] = []
    for path, entry in read_entries(section.get(name), f"contact.{name}", complain):
        try:
            sources.append(convert(entry, kind, path))
        except ValueError as error:
            complain(f"{error}; this source is left out")
    return sources
