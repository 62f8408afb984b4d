"""All attacks, by what they attack. Each file's `ATTACKS` is data; what has to go on for a while is a coroutine."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from tests.hostile.attack import Attack
from tests.hostile.attacks import (
    annotations,
    churn,
    names,
    owners,
    pods,
    refusals,
    rights,
    schedulers,
    specs,
    templates,
)

ALL: tuple[Attack, ...] = (
    *rights.ATTACKS,
    *refusals.ATTACKS,
    *annotations.ATTACKS,
    *owners.ATTACKS,
    *pods.ATTACKS,
    *names.ATTACKS,
    *specs.ATTACKS,
    *templates.ATTACKS,
    *schedulers.ATTACKS,
    *churn.ATTACKS,
)


# Of attacks that go on beside the victim. Each is a load of its own: eight of them leave two processors no time for the
# API server, which slows everybody down whatever the operator does.
_BUSY_AT_ONCE = 2


def groups(attacks: Sequence[Attack], size: int) -> Iterator[tuple[str, list[Attack]]]:
    """Those of a section together, at most `size` at once; a few of those that go on; a heavy one is alone."""
    for (section, heavy, busy), group in groupby(attacks, lambda it: (it.section, it.heavy, it.acts is not None)):
        found = list(group)
        at_once = 1 if heavy else min(size, _BUSY_AT_ONCE) if busy else size
        for start in range(0, len(found), at_once):
            yield section, found[start : start + at_once]
