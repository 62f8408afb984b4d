"""Run the example program as a user would: a process of its own, its output shown."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "examples" / "mixed_pipeline.py"


async def run_pipeline(arguments: list[str], kubeconfig: str, on_line: Callable[[str], None], seconds: float) -> int:
    """Run it, hand on each line; the exit code.

    Raises:
        TimeoutError: it still ran after `seconds`; it has been ended.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        # The images' Python differs from this one in its patch level; both come from the same locks.
        *("-W", "ignore:Mismatched versions found"),
        str(PROGRAM),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "KUBECONFIG": kubeconfig},
    )
    try:
        async with asyncio.timeout(seconds):
            assert process.stdout is not None
            async for line in process.stdout:
                on_line(line.decode(errors="replace").rstrip())
            return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
