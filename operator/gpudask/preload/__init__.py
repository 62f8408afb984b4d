"""The code that runs inside the Dask scheduler: demand, the fence, the drain, graphs, and their HTTP routes.

It stands alone: distributed, tornado and the standard library, Python >= 3.10, relative imports only, because the
operator mounts it as `gpudask_preload` into any image that has distributed. `docs/preload-protocol.md` is its contract.
This module itself imports nothing of distributed: the operator, which has none, calls `files`.
"""

from __future__ import annotations

import functools
import io
import zipfile
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

PROTOCOL = 1
ENTRY = "gpudask_entry.py"
ARCHIVE = "gpudask_preload.zip"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip file can say
_COMPRESSION = 9


@functools.cache
def files() -> dict[str, bytes]:
    """Return the files to mount, name -> bytes, for `dask scheduler --preload <folder>/gpudask_entry.py`."""
    return packed(sources())


def sources() -> dict[str, str]:
    """Return the texts, by their path in the archive; the entry, which stands beside it, by its name."""
    assert __package__, "sources() reads the files of its own package"
    texts = dict(_texts(resources.files(__package__), "gpudask_preload/"))
    return {ENTRY: texts.pop("gpudask_preload/entry.py")} | texts


def _texts(room: Traversable, path: str) -> Iterator[tuple[str, str]]:
    """Yield path -> text of a room's modules, and of the rooms within it."""
    for each in sorted(room.iterdir(), key=lambda each: each.name):
        if each.name.endswith(".py"):
            yield path + each.name, each.read_text(encoding="utf-8")
        elif each.joinpath("__init__.py").is_file():
            yield from _texts(each, f"{path}{each.name}/")


def packed(texts: dict[str, str]) -> dict[str, bytes]:
    """Return `sources` as the files to mount: the entry, and one archive of the package, the same for the same texts.

    Python imports from the archive, with the lines of the sources in its tracebacks.
    """
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION) as to:
        for path, text in sorted(texts.items()):
            if path != ENTRY:
                to.writestr(_member(path), text)
    return {ENTRY: texts[ENTRY].encode(), ARCHIVE: archive.getvalue()}


def _member(path: str) -> zipfile.ZipInfo:
    """A file of the archive, without what differs from one machine or day to another."""
    member = zipfile.ZipInfo(path, _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.create_system, member.external_attr = 3, 0o644 << 16  # as made on Unix, readable by everybody
    return member
