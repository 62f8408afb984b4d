"""THIRD_PARTY_NOTICES of a bundle: its Python packages, Go modules and Debian packages, with their licences' texts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from local.bundle.packing.writing import Item
from local.host.commands import run
from local.layout import REPOSITORY, cache_dir

NAME = "THIRD_PARTY_NOTICES"
_LINE = "=" * 100
_MODULE = re.compile(r"^\t(?:mod|dep|=>)\t(?P<path>\S+)\t(?P<version>v\S+)", re.MULTILINE)
_TEXTS = ("licen", "copying", "notice")
_DOCUMENTS = Path("/usr/share/doc")


def notices_item(items: Iterable[Item], go: str) -> Item:
    """The notices of what `items` bring; `go` is the program that built the Go binaries.

    Raises:
        LocalClusterError: a wheel or a binary cannot be read.
    """
    files = [item for item in items if item.source is not None]
    wheels = sorted({str(item.source.parent) for item in files if item.source and item.source.suffix == ".whl"})
    binaries = [item.source for item in files if item.source and item.path.startswith("bin/")]
    programs = [item.source for item in files if item.source and item.path.startswith("host/")]
    parts = [run([sys.executable, str(REPOSITORY / "images" / "notices.py"), *wheels])] if wheels else []
    parts += _go_modules(binaries, go)
    parts += _debian_packages(programs)
    target = cache_dir() / "bundles" / NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(parts))
    return Item(NAME, "sources", target)


def _go_modules(binaries: list[Path], go: str) -> Iterator[str]:
    """The modules that are linked into the binaries: they say so themselves, and Go's cache has the sources."""
    printed = "".join(run([go, "version", "-m", str(binary)]) for binary in binaries)
    cache = Path(run([go, "env", "GOMODCACHE"]).strip()) if binaries else Path()
    for path, version in sorted(set(_MODULE.findall(printed))):
        folder = cache / f"{_escaped(path)}@{_escaped(version)}"
        yield _section(f"Go module {path} {version}", _licences(folder))


def _debian_packages(programs: list[Path]) -> Iterator[str]:
    """The packages that the files came with; a file that no package has is left out."""
    for name in sorted(_packages_of(programs)):
        file = _DOCUMENTS / name / "copyright"
        yield _section(f"Debian package {name}", [file.read_text(errors="replace")] if file.exists() else [])


def _packages_of(programs: list[Path]) -> set[str]:
    """The Debian packages of files; dpkg knows some by the name that they had before /bin became a link to /usr/bin.

    It is asked once, since it reads the lists of all packages each time.
    """
    names = {program: [program, *_before_merge(program)] for program in programs}
    if not names or not shutil.which("dpkg"):
        return set()
    command = ["dpkg", "-S", *(str(name) for either in names.values() for name in either)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # fails where it does not know one
    lines = (line.rpartition(": ") for line in done.stdout.splitlines())
    found = {path: packages.partition(":")[0] for packages, _, path in lines if not packages.startswith("diversion ")}
    owners = (next((found[str(name)] for name in either if str(name) in found), "") for either in names.values())
    return {name for name in owners if name}


def _before_merge(program: Path) -> list[Path]:
    return [Path("/", *program.parts[2:])] if program.parts[1:2] == ("usr",) else []


def _escaped(text: str) -> str:
    """As Go names it in its cache: a capital letter is ! and the small one."""
    return re.sub(r"[A-Z]", lambda letter: f"!{letter[0].lower()}", text)


def _licences(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name.lower().startswith(_TEXTS))
    return [path.read_text(errors="replace") for path in files]


def _section(title: str, texts: list[str]) -> str:
    text = "\n".join(texts) or "(its licence is in its sources)\n"
    return f"{_LINE}\n{title}\n{_LINE}\n{text}"
