"""A script as a function for `KubeCluster.run_on_gpu`: its source goes to the worker and runs there as a program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from gpudask.kubecluster.on_gpu import remote


def of_script(path: Path | str, arguments: Sequence[str] = ()) -> Callable[[], int]:
    """A function for `run_on_gpu` that runs the file `path` as `__main__`, and gives the status that it exits with.

    What stands beside the file is not there: `client.upload_file` brings modules. `sys.argv` is the whole process's,
    so two scripts at a time on one worker see each other's.

    Raises:
        OSError: the file cannot be read.
    """
    path = Path(path)
    there = functools.partial(remote.run_script, path.read_text(encoding="utf-8"), str(path), list(arguments))
    functools.update_wrapper(there, remote.run_script)
    there.__name__ = path.name  # type: ignore[attr-defined]
    return there
