"""The ways in which a program ends, and the schedule: by a seed, which program ends in which of them. Pure."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass
from enum import Enum


class Ending(Enum):
    """What a program does once it has its cluster: it waits to be told, and ends by itself, or in one of these ways."""

    PLAIN = "plain"
    EXCEPTION = "exception"
    CHILD_FIRST = "its forked child ends first"
    CHILD_LAST = "its forked child ends last"


class Fault(Enum):
    """What becomes of a program's access to the API server."""

    NONE = "none"
    ANSWER_LOST = "the connection ends instead of the answer to its creation"
    ANSWER_HELD = "the answer to its creation never comes"
    CONTEXT_SWITCHED = "the kubeconfig's current context is another by its end"
    TOKEN_ENDED = "its token is refused, and its credential plugin gives no other"
    NETWORK_CUT = "what it sends arrives nowhere, and nothing comes"


@dataclass(frozen=True)
class Way:
    """A way to end.

    Attributes:
        name: as the table has it.
        signals: which the program gets; none: it is told to end by itself.
        at_start: they come as soon as its cluster exists, not when it is ready.
        ending: what the program does by itself.
        fault: of its access; of all but the answers, once it has its cluster.
    """

    name: str
    signals: tuple[signal.Signals, ...] = ()
    at_start: bool = False
    ending: Ending = Ending.PLAIN
    fault: Fault = Fault.NONE

    @property
    def forks(self) -> bool:
        """Whether there is a forked child."""
        return self.ending in (Ending.CHILD_FIRST, Ending.CHILD_LAST)


_INT, _TERM, _KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL
WAYS = (
    Way("exception", ending=Ending.EXCEPTION),
    Way("end without close"),
    Way("Ctrl-C", (_INT,)),
    Way("Ctrl-C twice", (_INT, _INT)),
    Way("Ctrl-C while it starts", (_INT,), at_start=True),
    Way("Ctrl-C twice while it starts", (_INT, _INT), at_start=True),
    Way("SIGTERM", (_TERM,)),
    Way("SIGKILL", (_KILL,)),
    Way("SIGKILL while it starts", (_KILL,), at_start=True),
    Way("fork, the child ends first", ending=Ending.CHILD_FIRST),
    Way("fork, SIGKILL to the parent alone", (_KILL,), ending=Ending.CHILD_LAST),
    Way("answer to the POST lost", fault=Fault.ANSWER_LOST),
    Way("answer to the POST held, Ctrl-C", (_INT,), at_start=True, fault=Fault.ANSWER_HELD),
    Way("context switched", fault=Fault.CONTEXT_SWITCHED),
    Way("token ended", fault=Fault.TOKEN_ENDED),
    Way("network cut", fault=Fault.NETWORK_CUT),
)
_WITH_GPU = 0.25  # of the programs: the local cluster's nodes offer few
_WITH_CLIENT = 0.5
_MOST_PAUSE_SECONDS = 1.5


@dataclass(frozen=True)
class Planned:
    """One program of the schedule.

    Attributes:
        number: from 0 on.
        way: how it ends.
        has_gpu: whether its worker is to have a GPU.
        has_client: whether a Dask client with a running task is connected; else only the lease holds the cluster.
        pauses: seconds before each of two signals, or before it is told to end.
    """

    number: int
    way: Way
    has_gpu: bool
    has_client: bool
    pauses: tuple[float, float]

    @property
    def cluster(self) -> str:
        """The name of its cluster."""
        return f"program-{self.number:03}"

    def __str__(self) -> str:
        pool, client = "gpu" if self.has_gpu else "cpu", "a client" if self.has_client else "no client"
        return f"{self.cluster}: {self.way.name} ({pool}, {client})"


def schedule(seed: int, programs: int, *, only: frozenset[str] = frozenset()) -> tuple[Planned, ...]:
    """The programs in their order: each way once, in an order of the seed's, then each once more, and so on.

    `only`: the names of ways; empty: all.
    """
    drawn = random.Random(seed)  # noqa: S311 - no secret
    ways = [way for way in WAYS if not only or way.name in only]
    order: list[Way] = []
    while len(order) < programs:
        order += drawn.sample(ways, len(ways))
    return tuple(
        Planned(
            number,
            way,
            has_gpu=drawn.random() < _WITH_GPU,
            has_client=drawn.random() < _WITH_CLIENT,
            pauses=(drawn.uniform(0.0, _MOST_PAUSE_SECONDS), drawn.uniform(0.0, _MOST_PAUSE_SECONDS)),
        )
        for number, way in enumerate(order[:programs])
    )
