"""Shared libraries that a program is linked to, as the loader finds them on this machine."""

from __future__ import annotations

from pathlib import Path

from local.errors import LocalClusterError
from local.host.commands import run


def linked(program: Path) -> dict[str, Path]:
    """Ask the loader what `program` is linked to, name -> file; nothing where it is static.

    Raises:
        LocalClusterError: a library is not to be found.
    """
    try:
        printed = run(["ldd", str(program)])
    except LocalClusterError as error:
        if "not a dynamic executable" in str(error) or "statically linked" in str(error):
            return {}
        raise
    return parse_ldd(printed, program)


def parse_ldd(printed: str, program: Path) -> dict[str, Path]:
    """Read what `ldd` prints of `program`."""
    found = {}
    for line in printed.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        if arrow and rest.startswith("not found"):
            raise LocalClusterError(f"{program} needs {name}, which is not installed here.")
        if arrow and rest.startswith("/"):
            found[name] = Path(rest.split(" (")[0])
        elif name.startswith("/"):
            found[Path(name.split(" (")[0]).name] = Path(name.split(" (")[0])
    return found
