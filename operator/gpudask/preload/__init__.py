"""The code that runs inside the Dask scheduler: demand, the fence, the drain, and their HTTP routes.

It stands alone: distributed, tornado and the standard library, Python >= 3.10, relative imports only, because the
operator mounts it as `gpudask_preload` into any image that has distributed. `docs/preload-protocol.md` is its contract.
This module itself imports nothing of distributed: the operator, which has none, calls `sources`.
"""

from __future__ import annotations

from importlib import resources

PROTOCOL = 1


def sources() -> dict[str, str]:
    """Return the files to mount, relative path -> text, for `dask scheduler --preload <dir>/gpudask_entry.py`."""
    assert __package__, "sources() reads the files of its own package"
    files = sorted(resources.files(__package__).iterdir(), key=lambda file: file.name)
    texts = {file.name: file.read_text(encoding="utf-8") for file in files if file.name.endswith(".py")}
    entry = texts.pop("entry.py")
    return {"gpudask_entry.py": entry} | {f"gpudask_preload/{name}": text for name, text in texts.items()}
