"""Something that listens on this machine and passes all bytes on: what an ingress controller does for websockets."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CHUNK_BYTES = 64 * 1024


@contextmanager
def listening(host: str, port: int, to_host: str, to_port: int) -> Iterator[list[str]]:
    """Pass on each connection to `host:port`, in a thread of its own; the list holds who came, as `ADDRESS:PORT`."""
    came: list[str] = []
    loop = asyncio.new_event_loop()
    started = threading.Event()
    end = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append("{}:{}".format(*writer.get_extra_info("peername")))
        onward_reader, onward_writer = await asyncio.open_connection(to_host, to_port)
        ways = [asyncio.create_task(_copy(reader, onward_writer)), asyncio.create_task(_copy(onward_reader, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        writer.close()
        onward_writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, host, port)
        started.set()
        await end.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    assert started.wait(10), f"cannot listen on {host}:{port}"
    try:
        yield came
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(10)
        loop.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
