"""Sections of the node's page: one for each room of the agent that is on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from .state import NodeState
from .words import mib


class Section(msgspec.Struct, frozen=True):
    """A table of texts. `name`: part of its element's id. `note`: a sentence below the title; empty: none."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def sections(state: NodeState) -> Iterable[Section]:
    """Return the sections of everything that is on and has something to show."""
    images = state.others.get("/v1/images", {}).get("items", ())
    if images:
        rows = [
            (image.get("ref", ""), ", ".join(image.get("runtimes", ())), mib(image.get("sizeBytes")))
            for image in images
        ]
        yield Section("images", "Images", ("Image", "Runtimes", "MiB"), rows)
