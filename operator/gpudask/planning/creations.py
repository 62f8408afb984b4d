"""How many pods a pass creates at most. The rest comes in the next pass, which follows at once.

So a pass stays short, whatever a spec asks for, and what is wanted meanwhile (a first GPU pod, a smaller size) need not
wait for thousands of pods.
"""

from __future__ import annotations

from dataclasses import replace

from gpudask.planning.actions import Action, CreateWorker, PoolPlan

AT_MOST = 200


def limited(pools: dict[str, PoolPlan], at_most: int = AT_MOST) -> dict[str, PoolPlan]:
    """`pools` that together create `at_most` pods: each as many as it wants, while the larger wishes share evenly."""
    wanted = {name: _creations(pool) for name, pool in pools.items()}
    if sum(wanted.values()) <= at_most:
        return pools
    left, allowed = at_most, {}
    for place, name in enumerate(sorted(wanted, key=wanted.__getitem__)):
        allowed[name] = min(wanted[name], left // (len(wanted) - place))
        left -= allowed[name]
    return {name: _cut(pool, allowed[name]) for name, pool in pools.items()}


def _creations(pool: PoolPlan) -> int:
    return sum(isinstance(action, CreateWorker) for action in pool.actions)


def _cut(pool: PoolPlan, creations: int) -> PoolPlan:
    actions: list[Action] = []
    for action in pool.actions:
        if isinstance(action, CreateWorker):
            creations -= 1
            if creations < 0:
                continue
        actions.append(action)
    return replace(pool, actions=tuple(actions))
