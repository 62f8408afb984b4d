"""The packages that `python -m local` needs: found installed, or unpacked from a bundle."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from local.bundle.activation import activate, active_bundle, last_bundle, receive
from local.errors import LocalClusterError

_OPTION = "--from-bundle"
_PACKAGES = ("typer", "rich", "yaml", "cryptography")


def prepare(arguments: Sequence[str]) -> None:
    """Receive the bundle that the command line names; else take the last where packages are missing.

    Raises:
        LocalClusterError: the bundle is not whole; or packages are missing and no bundle was ever received.
    """
    directory = named_bundle(arguments)
    if directory is not None:
        activate(receive(directory))
    elif bundle := active_bundle():
        activate(bundle)
    elif missing := [package for package in _PACKAGES if importlib.util.find_spec(package) is None]:
        last = last_bundle()
        if last is None:
            raise LocalClusterError(
                f"this Python has no {', '.join(missing)}: run it from the environment that `make setup` makes, or "
                f"begin with `up {_OPTION} DIR` where there is no network."
            )
        activate(last)


def named_bundle(arguments: Sequence[str]) -> Path | None:
    """Find the directory that the command line names with --from-bundle, before there is a parser for it."""
    for position, argument in enumerate(arguments):
        if argument == _OPTION and position + 1 < len(arguments):
            return Path(arguments[position + 1])
        if argument.startswith(f"{_OPTION}="):
            return Path(argument.partition("=")[2])
    return None


def run_from_archive(archive: Path, arguments: Sequence[str], executable: str) -> None:
    """Be the program `start.pyz` in a bundle's directory: become `python -m local` of the bundle's own sources.

    Raises:
        LocalClusterError: the bundle is not whole, or not for this machine.
    """
    root = receive(archive.resolve().parent)
    activate(root)
    os.environ["PYTHONPATH"] = str(root / "source")
    os.environ["GPUDASK_START"] = f"python3 {archive}"
    os.execv(executable, [executable, "-m", "local", *arguments])  # noqa: S606 - no shell is meant
