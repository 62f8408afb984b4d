"""The commands that a package manager puts on PATH: each starts its program, or names the extra that brings it.

Without an extra there is neither typer nor distributed nor kopf: `pip install gpudask` alone is the models.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

# By extra, what it brings: the modules that are missing where it is not installed.
_BRINGS = {
    "cli": ("typer", "rich", "click"),
    "client": ("distributed", "dask", "tornado", "httpx", "httpx_ws", "httpx-ws", "rich"),
    "operator": ("kopf", "kubernetes", "aiohttp"),
}


def missing_extra(error: ModuleNotFoundError, *extras: str) -> str:
    """What to install where an import failed for want of one of `extras`; empty where something else is missing."""
    module = (error.name or "").partition(".")[0]
    if not any(module in _BRINGS[extra] for extra in extras):
        return ""
    return f"{module} is not installed: pip install 'gpudask[{extras[0]}]', or '.[{extras[0]}]' from a checkout"


def command_line() -> None:
    """Be `gpudask`, and `kubectl gpudask`."""
    _main("gpudask", "gpudask.cli.main", "main", "cli", "client")()


def complete_for_kubectl() -> None:
    """Be what kubectl asks after TAB."""
    _main("gpudask", "gpudask.cli.main", "complete_for_kubectl", "cli", "client")()


def operator() -> int:
    """Be the operator; its exit status."""
    return int(_main("gpudask-operator", "gpudask.__main__", "main", "operator")())


def _main(program: str, module: str, function: str, *extras: str) -> Any:
    try:
        return getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        if advice := missing_extra(error, *extras):
            sys.exit(f"{program}: {advice}")
        raise
