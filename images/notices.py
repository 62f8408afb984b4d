#!/usr/bin/env python3
"""THIRD_PARTY_NOTICES of what an image or a bundle carries: each Python package with its licence and the text of it.

`python notices.py PLACE...` reads installed environments (their site-packages) and folders of wheels, and writes to
standard output. Each image runs it at the end of its build, and has the result in /licenses. Standard library alone.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

_TEXTS = ("licen", "copying", "notice", "authors")
_LINE = "=" * 100
_MOST_CHARACTERS = 500  # of a licence's name: some put the whole text there


@dataclass(frozen=True)
class Package:
    """A package: `texts` are its licence files, by name."""

    name: str
    version: str
    licence: str
    home: str
    texts: tuple[tuple[str, str], ...]


def packages(places: list[Path]) -> list[Package]:
    """The packages of all places, each once, by name."""
    found = {(item.name.lower(), item.version): item for place in places for item in _packages(place)}
    return [found[key] for key in sorted(found)]


def notices(found: list[Package]) -> str:
    """The notices: a table, then the texts. A text that several packages share stands there once."""
    table = [f"{item.name} {item.version}: {item.licence}" + (f" ({item.home})" if item.home else "") for item in found]
    owners: dict[str, list[str]] = {}
    for item in found:
        for name, text in item.texts:
            owners.setdefault(text.strip(), []).append(f"{item.name} {item.version}: {name}")
    texts = [f"{_LINE}\n" + "\n".join(of) + f"\n{_LINE}\n{text}\n" for text, of in owners.items()]
    head = "What is distributed here beside gpudask, whose licence is the file LICENSE. Made by images/notices.py.\n"
    return "\n".join([head, *table, "", *texts])


def _packages(place: Path) -> Iterator[Package]:
    if not place.is_dir():
        raise SystemExit(f"{place} is no directory: name site-packages, or a folder of wheels")
    for folder in sorted(place.glob("*.dist-info")):
        files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
        texts = {name: path.read_text(errors="replace") for name, path in files.items() if _is_licence(name)}
        yield _package((folder / "METADATA").read_text(errors="replace"), texts)
    for wheel in sorted(place.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            inside = [name for name in archive.namelist() if ".dist-info/" in name.partition("/")[0] + "/"]
            texts = {
                name.partition("/")[2]: archive.read(name).decode(errors="replace")
                for name in sorted(inside)
                if _is_licence(name.partition("/")[2])
            }
            metadata = next(name for name in inside if name.endswith(".dist-info/METADATA"))
            yield _package(archive.read(metadata).decode(errors="replace"), texts)


def _is_licence(name: str) -> bool:
    path = PurePosixPath(name)
    return path.parts[:1] in (("licenses",), ("license_files",)) or path.name.lower().startswith(_TEXTS)


def _package(metadata: str, texts: dict[str, str]) -> Package:
    head = HeaderParser().parsestr(metadata)
    return Package(str(head["Name"]), str(head["Version"]), _licence(head), _home(head), tuple(texts.items()))


def _licence(head: Message) -> str:
    """The expression, else the classifiers, else the first line of the free text."""
    if head["License-Expression"]:
        return str(head["License-Expression"])
    classifiers = [str(item) for item in head.get_all("Classifier", []) if str(item).startswith("License ::")]
    if classifiers:
        return ", ".join(item.rpartition(":: ")[2] for item in classifiers)
    lines = str(head["License"] or "").strip().splitlines()
    return lines[0][:_MOST_CHARACTERS] if lines else "see its text below"


def _home(head: Message) -> str:
    links = [str(item).partition(", ")[2] for item in head.get_all("Project-URL", [])]
    return str(head["Home-page"] or next(iter(links), ""))


if __name__ == "__main__":
    sys.stdout.write(notices(packages([Path(place) for place in sys.argv[1:]])))
