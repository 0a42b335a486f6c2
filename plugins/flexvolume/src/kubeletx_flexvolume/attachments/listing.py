"""Lists of all attachment records, in pages, decoded only as far as a look through all of them needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec
import structlog

from kubeletx.api import Conflict, NotFound, Record, Records

from .editing import not_served

log = structlog.get_logger(__name__)

_TRIES: Final = 3


class BriefEntry(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Node and boot at which an entry was made, and the storage cluster of its volume."""

    node: str
    boot_id: str = msgspec.field(name="bootID")
    node_uid: str = msgspec.field(default="", name="nodeUID")
    cluster: str = ""


class _Brief(msgspec.Struct, frozen=True, gc=False):
    attachments: tuple[BriefEntry, ...]


def origins_of(record: Record, problems: list[str] | None = None) -> tuple[BriefEntry, ...]:
    """Return the origins of the entries of a record; none if it cannot be read.

    That is added to `problems`; without them, it is logged.
    """
    try:
        return msgspec.convert(record.value, _Brief).attachments
    except msgspec.ValidationError as error:
        if problems is not None:
            problems.append(f"attachment record {record.name} cannot be read: {error}")
        else:
            log.warning("Failed to read an attachment record", volume=record.name, err=str(error))
        return ()


async def all_pages(records: Records) -> AsyncIterator[Sequence[Record]]:
    """Yield all records, page by page. A record may come twice if the list must begin again.

    Raises Conflict if the store forgets the list each time before its end.
    """
    for attempt in range(_TRIES):
        token, is_first = "", True
        try:
            while token or is_first:
                page = await records.list_page(token=token)
                yield page.records
                token, is_first = page.next_token, False
                await asyncio.sleep(0)
        except Conflict:
            if attempt == _TRIES - 1:
                raise
        except NotFound as error:
            raise not_served(error) from error
        else:
            return
