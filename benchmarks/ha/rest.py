"""What two operators ask of the API server and of the schedulers while nothing happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from time import monotonic

from benchmarks.ha.audit import extra
from benchmarks.ha.takeover import Theatre

# Live figures of a status are written up to five seconds late, and each pod is told once, after a while, that it rests.
_QUIET_SECONDS, _DEADLINE_SECONDS = 15.0, 180.0


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
    """Do nothing for so long, once nothing is asked for any more, or after three minutes."""
    leader, standby = theatre.leader, theatre.standby
    deadline, asked_for = monotonic() + _DEADLINE_SECONDS, True
    while asked_for and monotonic() < deadline:
        mark = theatre.audit.mark()
        await asyncio.sleep(_QUIET_SECONDS)
        asked_for = any(extra(theatre.audit.since(mark), who.credential) for who in (leader, standby))
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
