"""Lists of the API server, page by page, each of a bounded size whoever made the objects.

A page has so many objects, and an object as many bytes as its maker likes, up to 1.5 MB. A hundred such pods are read
in 700 ms, in which the event loop does nothing else, and in several times their size of memory. So a page that is too
large is not read to its end, and is asked for again with fewer objects.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from gpudask.api import Json
from gpudask.clients.errors import PageTooLargeError

# Objects of a list that are in memory as JSON at one time: what a larger page takes once, the process keeps.
MOST = 100
_FEWER = 4  # times, after a page that was too large
_GOOD_PAGES = 8  # in a row, after which twice as many objects are asked for


class Lister(Protocol):
    """Gets one page of a list."""

    async def list_page(self, path: str, *, query: dict[str, str], accept: str) -> Json:
        """As `ApiServer.list_page`."""


async def pages(
    api: Lister, path: str, *, query: dict[str, str], accept: str, most: int = MOST
) -> AsyncGenerator[Json]:
    """The pages of the list at `path`, of `most` objects at most.

    Raises:
        ApiError: the API server refused a page, or could not be reached; a version that is too old among them.
    """
    limit, good, proceed = most, 0, ""
    while True:
        asked = query | {"limit": str(limit)} | ({"continue": proceed} if proceed else {})
        try:
            page = await api.list_page(path, query=asked, accept=accept)
        except PageTooLargeError:
            limit, good = max(1, limit // _FEWER), 0
            continue
        yield page
        proceed = page["metadata"].get("continue") or ""
        if not proceed:
            return
        good += 1
        if good >= _GOOD_PAGES:
            limit, good = min(most, 2 * limit), 0
