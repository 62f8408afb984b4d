"""The user's program as a process of its own, as a notebook's kernel is one. It is ended by its process id."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.startup.rounds import Figures
from local.layout import cache_dir

_PROGRAM = Path(__file__).with_name("program.py")
_RESULT = 42


async def run_program(python: Path, module: str, words: dict[str, Any], kubeconfig: Path) -> Figures:
    """Run the program, and give its figures in seconds.

    The clock of everything but `imports` starts when the imports are done.

    Args:
        python: the interpreter of the environment that has the client.
        module: where `KubeCluster` is imported from.
        words: what it is called with.
        kubeconfig: the cluster.

    Raises:
        OSError: it failed; the text has the path of what it said.
    """
    log = cache_dir() / "logs" / f"benchmark-clients-{module}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as said:
        process = await asyncio.create_subprocess_exec(
            str(python),
            str(_PROGRAM),
            module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=said,
            env=os.environ | {"KUBECONFIG": str(kubeconfig)},
            start_new_session=True,  # Ctrl-C is for the benchmark, which ends it
        )
    try:
        assert process.stdin is not None, "it is a pipe"
        assert process.stdout is not None, "it is a pipe"
        figures = await _figures(process.stdout, log)
        process.stdin.write(json.dumps(words).encode() + b"\n")
        await process.stdin.drain()
        figures |= await _figures(process.stdout, log)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if figures.pop("result") != _RESULT:
        raise OSError(f"the first result is wrong; what the program said: {log}")
    return figures


async def _figures(said: asyncio.StreamReader, log: Path) -> Figures:
    """The next line that is figures: libraries print lines of their own."""
    async for line in said:
        if line.startswith(b"{"):
            return dict(json.loads(line))
    raise OSError(f"the program ended early; what it said: {log}")
