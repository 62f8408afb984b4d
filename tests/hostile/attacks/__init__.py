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


def groups(attacks: Sequence[Attack], size: int) -> Iterator[tuple[str, list[Attack]]]:
    """Those of a section together, at most `size` at once; a heavy one is alone."""
    for (section, heavy), group in groupby(attacks, lambda attack: (attack.section, attack.heavy)):
        found = list(group)
        each = 1 if heavy else size
        for start in range(0, len(found), each):
            yield section, found[start : start + each]
