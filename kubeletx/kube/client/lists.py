"""Paged lists with label and field selectors.

Source: Kubernetes API concepts, "Retrieving large results sets in chunks".
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from ..types.meta import ListMeta

if TYPE_CHECKING:
    from .requests import KubeClient

PAGE_ITEMS = 500


class ListType(Protocol):
    """Type of one page of a list, such as `PodList`."""

    @property
    def metadata(self) -> ListMeta:
        """Resource version of the list, and the token of the next page."""
        ...


L = TypeVar("L", bound=ListType)


def selectors(label_selector: str = "", field_selector: str = "") -> dict[str, str]:
    """Return the URL query parameters for the selectors that are not empty."""
    pairs = (("labelSelector", label_selector), ("fieldSelector", field_selector))
    return {name: text for name, text in pairs if text}


async def list_pages(
    client: KubeClient,
    path: str,
    type_: type[L],
    *,
    label_selector: str = "",
    field_selector: str = "",
    page_items: int = PAGE_ITEMS,
) -> AsyncIterator[L]:
    """Yield the pages of one list, at least one. All pages show the same resource version.

    Raises Expired if the server drops that version before the last page; the caller then starts again.
    `page_items`: maximum number of objects in a page.
    """
    query = {**selectors(label_selector, field_selector), "limit": str(page_items)}
    token = ""
    while True:
        page = await client.get(path, type_, params={**query, "continue": token} if token else query)
        yield page
        token = page.metadata.continue_
        if not token:
            return
