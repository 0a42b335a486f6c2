"""Lists in pages, filtered by the server. Source: Kubernetes API concepts, "Retrieving large results sets in chunks"."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from ..types.meta import ListMeta

if TYPE_CHECKING:
    from .requests import KubeClient

PAGE_ITEMS = 500


class ListType(Protocol):
    """One page of a list, such as a `PodList`."""

    @property
    def metadata(self) -> ListMeta:
        """Version of the list, and the token of its next page."""
        ...


L = TypeVar("L", bound=ListType)


def selectors(label_selector: str = "", field_selector: str = "") -> dict[str, str]:
    """Return the query parameters for the selectors that are not empty."""
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
    """Yield the pages of one consistent list, at least one page.

    Raises Expired if the server drops the list's version before its last page: start the list again.
    """
    query = {**selectors(label_selector, field_selector), "limit": str(page_items)}
    token = ""
    while True:
        page = await client.get(path, type_, params={**query, "continue": token} if token else query)
        yield page
        token = page.metadata.continue_
        if not token:
            return
