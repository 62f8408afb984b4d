"""The command `python -m benchmarks.clients`: all of it is in `benchmarks.startup.clients`."""

from __future__ import annotations

from benchmarks.startup.clients import CLIENTS

if __name__ == "__main__":
    CLIENTS.main()
