"""Whole sequences: what happens, how many seconds pass, and the pods that are there then. See `sequence`."""

from __future__ import annotations

import pytest

from tests.builders import a_pool
from tests.planning.builders import NOW, gpu_pool, scaled
from tests.planning.sequence import (
    CPU,
    Sequence,
    cancels,
    edits,
    hears,
    holds,
    limits,
    override,
    play,
    pod,
    restarts,
    restarts_deaf,
    scheduler,
    sets,
    submits,
)
from tests.planning.world import World

NEW = {"env": [{"name": "NEW", "value": "1"}]}
UNTIL = "2027-01-15T08:00:20Z"  # NOW + 20 s

SCALING = {
    "a GPU pool goes from zero to one for the first GPU task, and back": Sequence(
        [CPU, gpu_pool()],
        [
            (None, 4, {"cpu": "0I", "gpu": ""}),
            (submits(1, 10, GPU=1), 1, {"gpu": "0P"}),
            (None, 3, {"gpu": "0W"}),
            (None, 10, {"gpu": "0I"}),
            (None, 27, {"gpu": "0I"}),
            (None, 3, {"gpu": ""}),
        ],
    ),
    "with unknown durations it doubles, up to its maximum": Sequence(
        [CPU, gpu_pool(most=6)],
        [
            (None, 4, {}),
            (submits(50, 1000, GPU=1), 1, {"gpu": "0P"}),
            (None, 4, {"gpu": "0W"}),  # it has 2 s to end a first task
            (None, 1, {"gpu": "0W 1P"}),
            (None, 3, {"gpu": "0W 1W 2P"}),
            (None, 3, {"gpu": "0W 1W 2W 3S 4P"}),
            (None, 8, {"gpu": "0W 1W 2W 3W 4W 5W"}),
        ],
    ),
    "short tasks of unknown duration start no second pod when the first joins": Sequence(
        [CPU, gpu_pool(most=8)],
        [
            (None, 4, {}),
            (submits(20, 1, GPU=1), 1, {"gpu": "0P"}),
            *[(None, 1, {"gpu": now}) for now in ("0S", *["0W"] * 19, "0I")],
        ],
    ),
    "once their duration is known the target rules, up at once": Sequence(
        [CPU, gpu_pool(most=8)],
        [
            (None, 4, {}),
            (submits(100, 2, GPU=1), 4, {"gpu": "0W"}),
            (None, 1, {"gpu": "0W 1P 2P 3P 4P 5P 6P"}),  # 99 tasks of 2 s, 30 s wanted: 7 pods
        ],
    ),
    "with known durations it goes at once to what clears the queue in time": Sequence(
        [CPU, gpu_pool(most=8)],
        [
            (None, 4, {}),
            (submits(12, 10, known=True, GPU=1), 1, {"gpu": "0P 1P 2P 3P"}),  # 120 s of work, 30 s wanted
        ],
    ),
    "one long known task gets one pod, not one for each 30 s of it": Sequence(
        [CPU, gpu_pool(most=8)],
        [(None, 4, {}), (submits(1, 3000, known=True, GPU=1), 6, {"gpu": "0W"})],
    ),
    "pending pods are cancelled when the demand goes": Sequence(
        [CPU, gpu_pool(most=8)],
        [
            (None, 4, {}),
            (submits(12, 10, known=True, GPU=1), 1, {"gpu": "0P 1P 2P 3P"}),
            (cancels, 1, {"gpu": ""}),
        ],
    ),
    "pods that find no node cap the growth, and go when the demand goes": Sequence(
        [CPU, gpu_pool(most=8)],
        [
            (None, 4, {}),
            (submits(240, 100, known=True, GPU=1), 4, {"gpu": "0W 1W 2U 3U 4U 5U 6U 7U"}),
            (pod("gpu-7", phase="Failed"), 2, {"gpu": "0W 1W 2U 3U 4U 5U 6U 8U"}),  # a node may still come
            (None, 40, {}),
            (pod("gpu-8", phase="Failed"), 2, {"gpu": "0W 1W 2U 3U 4U 5U 6U"}),  # too late for the others
            (cancels, 1, {"gpu": "0I 1I"}),
        ],
        nodes={"gpu": 2},
    ),
    "the minimum stays without demand": Sequence(
        [scaled(least=2)], [(None, 4, {"cpu": "0I 1I"}), (None, 300, {"cpu": "0I 1I"})]
    ),
    "a GPU-only cluster grows from zero on plain tasks": Sequence(
        [gpu_pool()],
        [(None, 4, {"gpu": ""}), (submits(1), 1, {"gpu": "0P"}), (None, 3, {"gpu": "0W"}), (None, 50, {"gpu": ""})],
    ),
    "plain tasks in a mixed cluster leave the GPU pool alone": Sequence(
        [scaled(least=1), gpu_pool()],
        [(None, 4, {"cpu": "0I"}), (submits(40, 30), 20, {"cpu": "0W 1W 2W 3W", "gpu": ""})],
    ),
    "of two pools that serve a task the cheaper one grows": Sequence(
        [gpu_pool("big", count=4), gpu_pool("small"), CPU],
        [(None, 4, {}), (submits(1, GPU=1), 1, {"big": "", "small": "0P"})],
    ),
    "only the larger pool serves a task that the smaller cannot": Sequence(
        [gpu_pool("small"), scaled("big", gpu={"count": 2, "launcher": "dask"}, nthreads=2), CPU],
        [(None, 4, {}), (submits(1, GPU=2), 1, {"small": "", "big": "0P"})],
    ),
    "a pod of four GPUs leaves only when all of its workers are drained": Sequence(
        [CPU, gpu_pool(count=4, most=2)],
        [
            (None, 4, {}),
            (submits(3, 10, GPU=1), 4, {"gpu": "0W"}),
            (submits(1, 60, GPU=1), 15, {"gpu": "0W"}),  # three idle workers, one busy
            (None, 25, {"gpu": "0W"}),
            (edits(CPU, gpu_pool(count=4, most=2), **override(0)), 1, {"gpu": "0D"}),
            (None, 15, {"gpu": "0D"}),
            (None, 6, {"gpu": ""}),
        ],
    ),
    "an idle pod goes, a busy one never, though its number is higher": Sequence(
        [CPU, gpu_pool()],
        [
            (None, 4, {}),
            (submits(1, 20, known=True, GPU=1), 1, {"gpu": "0P"}),
            (submits(2, 200, known=True, GPU=1), 22, {"gpu": "0I 1W 2W"}),
            (None, 40, {"gpu": "1W 2W"}),
        ],
    ),
    "demand that returns calls a retiring pod back instead of making a new one": Sequence(
        [CPU, gpu_pool(most=2)],
        [
            (None, 4, {}),
            (submits(1, 5, GPU=1), 10, {"gpu": "0I"}),
            (holds("gpu-0", "data"), 60, {"gpu": "0I"}),  # a result with nowhere to go keeps it
            (edits(CPU, gpu_pool(most=2), **override(0)), 1, {"gpu": "0D"}),
            (edits(CPU, gpu_pool(most=2)), 1, {"gpu": "0D"}),
            (submits(1, 5, GPU=1), 1, {"gpu": "0W"}),
        ],
    ),
    "while the demand is unknown sizes stay, and a lost pod is replaced": Sequence(
        [CPU, gpu_pool()],
        [
            (None, 4, {}),
            (submits(1, 5, GPU=1), 6, {"gpu": "0W"}),
            (sets(silent=True), 100, {"cpu": "0I", "gpu": "0I"}),
            (lambda world: world.vanish("gpu-0"), 4, {"gpu": "0I"}),
            (sets(silent=False), 40, {"gpu": ""}),
        ],
    ),
    "held data keeps an idle pod for ever": Sequence(
        [CPU, gpu_pool()],
        [(None, 4, {}), (submits(1, 5, GPU=1), 6, {}), (holds("gpu-0", "data"), 900, {"gpu": "0I"})],
    ),
    "held data is let go after releaseAfter": Sequence(
        [CPU, gpu_pool(heldData={"releaseAfter": "2m"})],
        [
            (None, 4, {}),
            (submits(1, 5, GPU=1), 6, {}),
            (holds("gpu-0", "data"), 110, {"gpu": "0I"}),
            (None, 20, {"gpu": ""}),
        ],
    ),
    "an actor keeps its pod though its data might go": Sequence(
        [CPU, gpu_pool(heldData={"releaseAfter": "1m"})],
        [(None, 4, {}), (submits(1, 5, GPU=1), 6, {}), (holds("gpu-0", "actor", "data"), 400, {"gpu": "0I"})],
    ),
}

PEOPLE = {
    "replicas are kept, up and down; who was idle longest leaves, of equals the highest number": Sequence(
        [a_pool(replicas=2)],
        [
            (None, 4, {"cpu": "0I 1I"}),
            (edits(a_pool(replicas=4)), 4, {"cpu": "0I 1I 2I 3I"}),
            (edits(a_pool(replicas=1)), 4, {"cpu": "2I"}),
            (edits(a_pool(replicas=0)), 4, {"cpu": ""}),
        ],
    ),
    "who asks for fewer gets the idle ones first, and the busy ones drained, not cut": Sequence(
        [a_pool(replicas=3)],
        [
            (submits(2, 30), 5, {"cpu": "0W 1W 2I"}),
            (edits(a_pool(replicas=1)), 1, {"cpu": "0W 1D"}),
            (None, 20, {"cpu": "0W 1D"}),
            (None, 15, {"cpu": "0I"}),
        ],
    ),
    "an override wins over autoscaling until it expires": Sequence(
        [CPU, gpu_pool(idle="5s")],
        [
            (None, 4, {"gpu": ""}),
            (edits(CPU, gpu_pool(idle="5s"), **override(2, until=UNTIL)), 4, {"gpu": "0I 1I"}),
            (None, 11, {"gpu": "0I 1I"}),
            (None, 4, {"gpu": ""}),
        ],
    ),
    "an override of zero keeps a pool at zero whatever is wanted": Sequence(
        [CPU, gpu_pool()],
        [
            (edits(CPU, gpu_pool(), **override(0)), 4, {}),
            (submits(3, GPU=1), 30, {"gpu": ""}),
            (edits(CPU, gpu_pool()), 1, {"gpu": "0P"}),
        ],
    ),
    "an expired override of zero leaves the pool to its demand": Sequence(
        [CPU, gpu_pool()],
        [
            (edits(CPU, gpu_pool(), **override(0, until=UNTIL)), 4, {}),
            (submits(1, GPU=1), 15, {"gpu": ""}),
            (None, 3, {"gpu": "0S"}),
        ],
    ),
    "limits set by an override stand in for the manifest's until they expire": Sequence(
        [CPU, gpu_pool(idle="5s", most=1)],
        [
            (edits(CPU, gpu_pool(idle="5s", most=1), **limits(2, 3, until=UNTIL)), 4, {"gpu": "0I 1I"}),
            (submits(3, 4, GPU=1), 5, {"gpu": "0I 1I 2W"}),
            (None, 20, {"gpu": ""}),
        ],
    ),
    "limits set by an override make a fixed pool follow demand": Sequence(
        [CPU, a_pool("gpu", gpu={}, replicas=1)],
        [
            (None, 4, {"gpu": "0I"}),
            (edits(CPU, a_pool("gpu", gpu={}, replicas=1), **limits(0, 2)), 66, {"gpu": ""}),
            (submits(1, GPU=1), 1, {"gpu": "0P"}),
        ],
    ),
    "an override's maximum below the manifest's minimum drains what is above it": Sequence(
        [scaled(least=3)],
        [
            (None, 4, {"cpu": "0I 1I 2I"}),
            (edits(scaled(least=3), **limits(0, 1, pool="cpu")), 3, {"cpu": "0I"}),
        ],
    ),
    "a lowered maximum drains what is above it, the busy ones, too": Sequence(
        [gpu_pool(most=3)],
        [
            (None, 4, {}),
            (submits(3, 30, known=True), 8, {"gpu": "0W 1W 2W"}),
            (edits(gpu_pool(most=1)), 4, {"gpu": "0W 1D 2D"}),
            (None, 25, {"gpu": "0I"}),
        ],
    ),
    "an override's pool that the spec lacks changes nothing": Sequence(
        [CPU], [(edits(CPU, **override(3, pool="none")), 5, {"cpu": "0I"})]
    ),
    "suspension drains all, then takes the scheduler; resuming brings them back": Sequence(
        [a_pool(replicas=2), gpu_pool()],
        [
            (submits(1, 20), 5, {"cpu": "0W 1I", "scheduler": "R"}),
            (edits(a_pool(replicas=2), gpu_pool(), suspend=True), 4, {"cpu": "0D", "scheduler": "R"}),
            (None, 30, {"cpu": "", "scheduler": ""}),
            (edits(a_pool(replicas=2), gpu_pool()), 4, {"cpu": "0I 1I", "scheduler": "R"}),
        ],
    ),
    "suspension ends though the scheduler does not run": Sequence(
        [a_pool(replicas=2)],
        [
            (None, 4, {}),
            (scheduler(started=0.0, ready=False), 1, {}),
            (edits(a_pool(replicas=2), suspend=True), 4, {"cpu": "", "scheduler": ""}),
        ],
    ),
    "a pool that the spec no longer has drains and goes": Sequence(
        [CPU, a_pool("extra", replicas=2)],
        [
            (submits(3, 20), 5, {"cpu": "0W", "extra": "0W 1W"}),
            (edits(CPU), 3, {"extra": "0D 1D"}),
            (None, 20, {"extra": "", "cpu": "0I"}),
        ],
    ),
}

FAILURES = {
    "a pod deleted by hand returns": Sequence(
        [a_pool(replicas=2)],
        [(None, 4, {}), (lambda world: world.vanish("cpu-0"), 1, {"cpu": "0P 1I"}), (None, 3, {"cpu": "0I 1I"})],
    ),
    "a terminating pod keeps its number": Sequence(
        [a_pool(replicas=2)],
        [
            (None, 4, {}),
            (pod("cpu-0", delete_by=NOW + 60), 4, {"cpu": "0T 1I 2I"}),
            (None, 60, {"cpu": "1I 2I"}),
        ],
    ),
    "a pod on a lost node is replaced under another number": Sequence(
        [a_pool(replicas=1)],
        [(None, 4, {}), (pod("cpu-0", node="lost", delete_by=NOW + 30), 600, {"cpu": "0T 1I"})],
    ),
    "an evicted pod is deleted and replaced": Sequence(
        [a_pool(replicas=1)], [(None, 4, {}), (pod("cpu-0", phase="Failed"), 5, {"cpu": "1I"})]
    ),
    "a pod that ended well is replaced, too": Sequence(
        [a_pool(replicas=1)], [(None, 4, {}), (pod("cpu-0", phase="Succeeded"), 5, {"cpu": "1I"})]
    ),
    "a pod whose container is not there is cancelled before one that works": Sequence(
        [a_pool(replicas=2)],
        [
            (None, 4, {}),
            (pod("cpu-0", started=0.0, waiting="RunContainerError: no such device"), 1, {"cpu": "0P 1I"}),
            (edits(a_pool(replicas=1)), 1, {"cpu": "1I"}),
        ],
    ),
    "workers that restart with the scheduler keep their pods, until those are idle for the timeout": Sequence(
        [scaled(least=1), gpu_pool()],
        [
            (submits(3, 200, known=True, GPU=1), 10, {"cpu": "0I", "gpu": "0W 1W 2W"}),
            (World.restart_scheduler, 9, {"cpu": "0P", "gpu": "0P 1P 2P"}),
            (None, 3, {"cpu": "0I", "gpu": "0I 1I 2I"}),
            (None, 17, {"gpu": "0I 1I 2I"}),
            (None, 20, {"cpu": "0I", "gpu": ""}),
        ],
    ),
    "demand that returns after the scheduler's restart finds the workers that were there": Sequence(
        [CPU, gpu_pool()],
        [
            (submits(2, 200, known=True, GPU=1), 10, {"gpu": "0W 1W"}),
            (World.restart_scheduler, 1, {"gpu": "0P 1P"}),
            (submits(2, 200, known=True, GPU=1), 12, {"gpu": "0W 1W"}),
        ],
    ),
    "a container that ended a moment ago, with its scheduler, is no pending pod": Sequence(
        [CPU, gpu_pool()],
        [
            (submits(1, 200, known=True, GPU=1), 10, {"gpu": "0W"}),
            (lambda world: (world.cancel(), world.exit("gpu-0", code=1)), 10, {"gpu": "0P"}),
            (lambda world: world.come_back("gpu-0"), 3, {"gpu": "0I"}),
        ],
    ),
    "one that failed, and does not come back, is as good as pending": Sequence(
        [CPU, gpu_pool()],
        [
            (submits(1, 200, known=True, GPU=1), 10, {"gpu": "0W"}),
            (lambda world: (world.cancel(), world.exit("gpu-0", code=1)), 14, {"gpu": "0P"}),
            (None, 3, {"gpu": ""}),
        ],
    ),
    "a quota holds back its pool and no other": Sequence(
        [CPU, gpu_pool()],
        [
            (sets(quota={"gpu"}), 1, {}),
            (submits(4, GPU=1), 30, {"cpu": "0I", "gpu": ""}),
            (edits(a_pool(replicas=2), gpu_pool()), 5, {"cpu": "0I 1I", "gpu": ""}),
            (sets(quota=set()), 12, {"cpu": "0I 1I", "gpu": "0W 1W 2S"}),
        ],
    ),
    "a scheduler on a lost node gets a successor after ten seconds": Sequence(
        [CPU],
        [
            (None, 4, {"scheduler": "R"}),
            (scheduler(node="lost", delete_by=NOW + 34), 38, {"scheduler": "T"}),
            (None, 5, {"scheduler": "T R"}),
        ],
    ),
    "a scheduler that ended is replaced": Sequence(
        [CPU],
        [
            (None, 4, {"scheduler": "R"}),
            (scheduler(phase="Failed"), 5, {"scheduler": "R"}),
        ],
    ),
}

ROLLOUTS = {
    "fixed pools: a new pod first, then an old one leaves": Sequence(
        [a_pool(replicas=2)],
        [
            (None, 4, {"cpu": "0I 1I"}),
            (edits(a_pool(replicas=2, **NEW)), 1, {"cpu": "0I' 1I' 2P"}),
            (None, 2, {"cpu": "0I' 1I' 2I"}),
            (None, 1, {"cpu": "0I' 2I 3P"}),
            (None, 2, {"cpu": "0I' 2I 3I"}),
            (None, 1, {"cpu": "2I 3I"}),
        ],
    ),
    "busy old pods finish first": Sequence(
        [a_pool(replicas=1)],
        [
            (submits(1, 30), 5, {"cpu": "0W"}),
            (edits(a_pool(replicas=1, **NEW)), 6, {"cpu": "0D' 1I"}),
            (None, 25, {"cpu": "1I"}),
        ],
    ),
    "a new pod that finds no node gets an old one's": Sequence(
        [a_pool("gpu", replicas=2, gpu={})],
        [
            (None, 4, {"gpu": "0I 1I"}),
            (edits(a_pool("gpu", replicas=2, gpu={}, **NEW)), 2, {"gpu": "0I' 1I' 2U"}),
            (None, 1, {"gpu": "0I' 2S"}),
            (None, 3, {"gpu": "1S 2I"}),
        ],
        nodes={"gpu": 2},
    ),
    "old pods that never worked are replaced at once": Sequence(
        [a_pool(replicas=2)],
        [
            (sets(nodes={"cpu": 0}), 5, {"cpu": "0U 1U"}),
            (sets(nodes={}), 0, {}),
            (edits(a_pool(replicas=2, **NEW)), 1, {"cpu": "2P 3P"}),
            (None, 3, {"cpu": "2I 3I"}),
        ],
    ),
    "a pool is scaled while it rolls": Sequence(
        [a_pool(replicas=2)],
        [
            (None, 4, {}),
            (edits(a_pool(replicas=2, **NEW)), 1, {"cpu": "0I' 1I' 2P"}),
            (edits(a_pool(replicas=4, **NEW)), 30, {"cpu": "2I 3I 4I 5I"}),
            (edits(a_pool(replicas=4)), 3, {"cpu": "0I 2I' 3I' 4I' 5I'"}),
            (edits(a_pool(replicas=1)), 30, {"cpu": "0I"}),
        ],
    ),
    "an autoscaled pool that rolls does not grow": Sequence(
        [CPU, gpu_pool(most=8)],
        [
            (None, 4, {}),
            (submits(2, 40, known=True, GPU=1), 5, {"gpu": "0W 1W"}),
            (edits(CPU, gpu_pool(most=8, **NEW)), 3, {"gpu": "0W' 1W' 2I"}),
            (None, 5, {"gpu": "0D' 1D' 2I 3I"}),
            (None, 25, {"gpu": "0D' 1D' 2I 3I"}),
            (None, 60, {"gpu": ""}),
        ],
    ),
    "an idle autoscaled pool keeps its size while it rolls, until its pods are idle for the timeout": Sequence(
        [CPU, gpu_pool(most=8)],
        [
            (None, 4, {}),
            (submits(3, 30, known=True, GPU=1), 34, {"gpu": "0I 1I 2I"}),
            (edits(CPU, gpu_pool(most=8, **NEW)), 1, {"gpu": "0I' 1I' 2I' 3P"}),
            (None, 13, {"gpu": "2I 3I 4I"}),
            (None, 30, {"gpu": ""}),
        ],
    ),
    **{
        f"an operator that restarts {when} takes no surplus for size": Sequence(
            [CPU, gpu_pool(most=8)],
            [
                (None, 4, {}),
                (submits(3, 30, known=True, GPU=1), 34, {"gpu": "0I 1I 2I"}),
                (edits(CPU, gpu_pool(most=8, **NEW)), seconds, {"gpu": then}),
                (restarts, 14 - seconds, {"gpu": "2I 3I 4I"}),
            ],
        )
        for when, seconds, then in (
            ("while a new pod is pending", 1, "0I' 1I' 2I' 3P"),
            ("while a new pod starts", 2, "0I' 1I' 2I' 3S"),
            ("when a new pod has just come", 3, "0I' 1I' 2I' 3I"),
            ("when an old pod has left for it", 4, "0I' 1I' 3I 4P"),
        )
    },
    "an operator that restarts deaf in a rollout takes no surplus for size once it hears": Sequence(
        [CPU, gpu_pool(most=8)],
        [
            (None, 4, {}),
            (submits(8, 400, known=True, GPU=1), 5, {"gpu": "0W 1W 2W 3W 4W 5W 6W 7W"}),
            (edits(CPU, gpu_pool(most=20, **NEW)), 2, {"gpu": "0W' 1W' 2W' 3W' 4W' 5W' 6W' 7W' 8S 9S"}),
            (restarts_deaf, 1, {"gpu": "0W' 1W' 2W' 3W' 4W' 5W' 6W' 7W' 8I 9I"}),
            (hears, 1, {"gpu": "0W' 1W' 2W' 3W' 4W' 5W' 6D' 7D' 8I 9I 10P 11P"}),
        ],
    ),
    "an operator that restarts while an old pod made room keeps the size": Sequence(
        [gpu_pool(most=2)],
        [
            (None, 4, {}),
            (submits(2, 60, known=True), 5, {"gpu": "0W 1W"}),
            (edits(gpu_pool(most=2, **NEW)), 4, {"gpu": "0W' 1D' 2U"}),
            (restarts, 2, {"gpu": "0W' 1D' 2U"}),
        ],
        nodes={"gpu": 2},
    ),
    "sizes are no reason to roll": Sequence(
        [scaled(least=1)],
        [(None, 4, {"cpu": "0I"}), (edits(scaled(least=2, most=9, idle="1m", accepts="any")), 4, {"cpu": "0I 1I"})],
    ),
    "the scheduler is replaced when it knows no task": Sequence(
        [CPU],
        [
            (submits(1, 10), 5, {"scheduler": "R"}),
            (edits(CPU, scheduler=NEW), 5, {"scheduler": "R'", "cpu": "0W"}),
            (None, 20, {"scheduler": "R", "cpu": "0I"}),
        ],
    ),
    "a held result keeps the scheduler under WhenIdle": Sequence(
        [CPU],
        [
            (None, 4, {}),
            (holds("cpu-0", "data"), 1, {}),
            (edits(CPU, scheduler=NEW), 60, {"scheduler": "R'"}),
            (holds("cpu-0"), 6, {"scheduler": "R"}),
        ],
    ),
    "under Drain the scheduler goes once nothing runs, held results or not": Sequence(
        [CPU],
        [
            (submits(1, 10), 4, {}),
            (holds("cpu-0", "data"), 1, {}),
            (edits(CPU, scheduler=NEW, rollout="Drain"), 5, {"scheduler": "R'"}),
            (None, 10, {"scheduler": "R"}),
        ],
    ),
    "workers keep the image of a scheduler that waits, and so does a new one": Sequence(
        [CPU],
        [
            (submits(2, 100), 5, {"scheduler": "R", "cpu": "0W"}),
            (edits(a_pool(replicas=2), image="dask:2"), 1, {"scheduler": "R'", "cpu": "0W' 1P'"}),
            (None, 29, {"scheduler": "R'", "cpu": "0W' 1W'"}),
            (cancels, 20, {"scheduler": "R", "cpu": "2I 3I"}),
        ],
    ),
    "what else is edited reaches workers at once, with the image of the scheduler that waits": Sequence(
        [CPU],
        [
            (submits(1, 60), 5, {"cpu": "0W"}),
            (edits(CPU, image="dask:2", env=NEW["env"]), 40, {"scheduler": "R'", "cpu": "0D' 1I'"}),
            (cancels, 20, {"scheduler": "R", "cpu": "0I"}),
        ],
    ),
    "an image that is edited back replaces nothing": Sequence(
        [CPU],
        [
            (submits(1, 300), 5, {}),
            (edits(CPU, image="dask:2"), 20, {"scheduler": "R'", "cpu": "0W'"}),
            (edits(CPU), 20, {"scheduler": "R", "cpu": "0W"}),
        ],
    ),
    "a protocol that the waiting scheduler does not speak": Sequence(
        [scaled()],
        [
            (submits(1, 30), 5, {"cpu": "0W"}),
            (edits(scaled(), protocol="tls", rollout="Drain"), 1, {"scheduler": "R'", "cpu": "0W'"}),
            (submits(9, 30, known=True), 4, {"scheduler": "R'", "cpu": "0W' 1W' 2W' 3W'"}),
            (cancels, 10, {"scheduler": "R"}),
        ],
    ),
    "under Drain workers get a new image at once": Sequence(
        [CPU],
        [
            (submits(1, 20), 5, {"cpu": "0W"}),
            (edits(CPU, image="dask:2", rollout="Drain"), 10, {"scheduler": "R'", "cpu": "0D' 1I"}),
        ],
    ),
    "workers keep no image for a scheduler of a version that does not say its own": Sequence(
        [CPU],
        [
            (submits(1, 20), 5, {"cpu": "0W"}),
            (scheduler(made_with=None), 1, {}),
            (edits(CPU, image="dask:2"), 10, {"scheduler": "R'", "cpu": "0D' 1I"}),
        ],
    ),
    "workers keep no image for a scheduler whose own image stays": Sequence(
        [CPU],
        [
            (submits(1, 20), 5, {"cpu": "0W"}),
            (edits(CPU, image="dask:2", scheduler={"image": "registry.example/dask:1"}), 10, {"cpu": "0D' 1I"}),
        ],
    ),
    "a scheduler that never ran is replaced at once": Sequence(
        [CPU], [(None, 1, {"scheduler": "P"}), (edits(CPU, scheduler=NEW), 1, {"scheduler": "P"})]
    ),
}


@pytest.mark.parametrize(
    "sequence",
    [
        pytest.param(sequence, id=name.replace(" ", "-"))
        for table in (SCALING, PEOPLE, FAILURES, ROLLOUTS)
        for name, sequence in table.items()
    ],
)
def test_sequence(sequence: Sequence):
    play(sequence)
