"""The clocks beside the operator's own: the API server's and its machine's (docs/adr/0032-clocks.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clocks:
    """By how many seconds the API server's clock, and this machine's, are ahead of the operator's own."""

    server_ahead: float = 0.0
    wall_ahead: float = 0.0


AGREED = Clocks()  # all say the same
