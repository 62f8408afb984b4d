"""The bundle's manifest: its parts, the archives that run through them, and each file with its hash.

The parts are one long sequence of bytes, cut at a given size. Archives, compressed one by one so that they unpack
side by side, lie in it one after the other. An archive is a row of contents; a content may be several files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from local.errors import LocalClusterError

FORMAT = 1
MANIFEST = "manifest.json"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Part:
    """A file beside the manifest; `size` in bytes, `sha256` of all of it."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Content:
    """Bytes in an archive; `size` and `sha256` once they are unpacked."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Archive:
    """A row of contents in the xz format: `size` bytes from `offset` on, counted through all parts."""

    name: str
    offset: int
    size: int
    contents: tuple[Content, ...]


@dataclass(frozen=True)
class File:
    """A file unpacked to `path`: a content, with the permissions `mode`; or a link to `link`."""

    path: str
    sha256: str = ""
    mode: int = 0o644
    link: str = ""


@dataclass(frozen=True)
class Manifest:
    """A whole bundle, for machines of the architecture `machine` whose C library is `glibc` or newer."""

    machine: str
    glibc: str
    parts: tuple[Part, ...]
    archives: tuple[Archive, ...]
    files: tuple[File, ...]
    format: int = FORMAT

    @property
    def key(self) -> str:
        """16 hexadecimal digits that differ where anything in the bundle does."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:16]

    @property
    def unpacked_bytes(self) -> int:
        """Size of the contents once they are unpacked."""
        return sum(content.size for archive in self.archives for content in archive.contents)

    def text(self) -> str:
        """Write it as JSON, one file a line."""
        fields = asdict(self)
        files = ",\n  ".join(json.dumps(file) for file in fields.pop("files"))
        return f'{json.dumps(fields, indent=1)[:-2]},\n "files": [\n  {files}\n ]\n}}\n'

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """Read the manifest of the bundle in `directory`.

        Raises:
            LocalClusterError: there is none, or it is no manifest that this version understands.
        """
        path = directory / MANIFEST
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            if fields["format"] != FORMAT:
                raise LocalClusterError(
                    f"{path} is of format {fields['format']}, and this version reads {FORMAT}: "
                    "take the bundle and the checkout from one version."
                )
            return cls(**{**fields, **_tuples(fields)})
        except FileNotFoundError as error:
            raise LocalClusterError(
                f"no {MANIFEST} in {directory}: it travels with the parts that `python -m local bundle` writes."
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise LocalClusterError(f"{path} is no manifest of a bundle ({error!r}): copy it once more.") from error


def hash_of(path: Path) -> str:
    """Hash a file: SHA-256, in hexadecimal digits."""
    digest = hashlib.sha256()
    for block in blocks_of(path):
        digest.update(block)
    return digest.hexdigest()


def blocks_of(path: Path) -> Iterator[bytes]:
    """Read a file in blocks of 1 MiB."""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    archives = (
        Archive(**{**archive, "contents": tuple(Content(**content) for content in archive["contents"])})
        for archive in fields["archives"]
    )
    return {
        "parts": tuple(Part(**part) for part in fields["parts"]),
        "archives": tuple(archives),
        "files": tuple(File(**file) for file in fields["files"]),
    }
