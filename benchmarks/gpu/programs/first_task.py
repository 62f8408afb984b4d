"""One GPU task, submitted where there is no GPU worker."""

from __future__ import annotations

import time

from benchmarks.gpu.programs import work
from benchmarks.gpu.programs.session import GPU, gpu_workers, options, say, session, versions


def main() -> None:
    """Submit it and wait; the clocks are those of one machine, or this says nothing."""
    parser = options()
    parser.add_argument("--offered", help="a resource that the workers offer which it is for, beside GPU")
    arguments = parser.parse_args()
    with session(arguments) as client:
        found = gpu_workers(client)
        if found:
            raise RuntimeError(f"no GPU worker should be there yet, but there are {found}")
        wanted = GPU | ({arguments.offered: 1} if arguments.offered else {})
        future = client.submit(work.first, time.time(), resources=wanted, pure=False)
        stamps = future.result()
        say(stamps=stamps | {"received": time.time()}, versions=versions())


if __name__ == "__main__":
    main()
