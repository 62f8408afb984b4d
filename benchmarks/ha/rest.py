"""What two operators ask of the API server and of the schedulers while nothing happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from benchmarks.ha.audit import extra
from benchmarks.ha.takeover import Theatre

_LATE_SECONDS = 6.0  # live figures of a status are written up to five seconds late


@dataclass(frozen=True)
class Rest:
    """Requests in `seconds`, watches and those for the Lease left out, by what was asked for; and long polls.

    `lease`: those for the Lease, of both.
    """

    seconds: float
    leader: dict[str, int]
    standby: dict[str, int]
    lease: int
    polls: int

    def rate(self, requests: dict[str, int]) -> float:
        """Requests a second."""
        return sum(requests.values()) / self.seconds


async def measure(theatre: Theatre, seconds: float) -> Rest:
    """Do nothing for so long."""
    await asyncio.sleep(_LATE_SECONDS)
    leader, standby = theatre.leader, theatre.standby
    schedulers = theatre.stage.schedulers.by_address.values()
    mark, polled = theatre.audit.mark(), sum(played.polls for played in schedulers)
    await asyncio.sleep(seconds)
    requests, polls = theatre.audit.since(mark), sum(played.polls for played in schedulers) - polled
    asked = [
        dict(Counter(f"{item.verb} {item.resource}" for item in extra(requests, replica.credential)))
        for replica in (leader, standby)
    ]
    renewals = sum(
        item.resource == "leases" and item.credential in (leader.credential, standby.credential) for item in requests
    )
    return Rest(seconds, asked[0], asked[1], renewals, polls)
