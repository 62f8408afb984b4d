"""Traces that hypothesis draws: tasks with inputs, pools and nodes."""

from __future__ import annotations

from hypothesis import strategies as st

from benchmarks.scaling.trace import GPU, PLAIN, Machines, Task, Trace
from tests.scaling_simulator.small import pools

durations = st.floats(1.0, 60.0)
limits = st.tuples(st.integers(0, 2), st.integers(1, 3))


@st.composite
def machines(draw: st.DrawFn) -> Machines:
    return Machines(
        gpus_per_node=draw(st.sampled_from([1, 2, 8])),
        node_seconds=draw(st.sampled_from([0.0, 20.0, 300.0])),
        pull_seconds=draw(st.sampled_from([0.0, 60.0])),
        start_seconds=draw(st.floats(1.0, 6.0)),
        give_back_seconds=draw(st.sampled_from([0.0, 30.0, 600.0])),
    )


@st.composite
def tasks(draw: st.DrawFn, *, jobs: int) -> list[Task]:
    found: list[Task] = []
    for job in range(jobs):
        first = len(found)
        for _ in range(draw(st.integers(1, 5))):
            count, seconds = draw(st.integers(1, 12)), draw(durations)
            resources, prefix = draw(st.sampled_from([PLAIN, GPU])), draw(st.sampled_from("abc"))
            before = range(first, len(found))
            needs = tuple(draw(st.lists(st.sampled_from(before), unique=True, max_size=3))) if before else ()
            found += [Task(job, f"{prefix}{len(resources)}", seconds, resources, needs) for _ in range(count)]
    return found


@st.composite
def traces(draw: st.DrawFn, *, least_gpus: bool = True) -> Trace:
    """Pools with any limits; the GPU pool's minimum is 0 unless `least_gpus`."""
    submitted = sorted(draw(st.lists(st.floats(0.0, 400.0), min_size=1, max_size=3)))
    (cpu_least, cpu_more), (gpu_least, gpu_more) = draw(limits), draw(limits)
    gpu_least *= least_gpus
    sizes = pools(cpu=(cpu_least, cpu_least + cpu_more), gpu=(gpu_least, gpu_least + gpu_more), idle="5s")
    if draw(st.booleans()):  # where plain tasks spill over to
        sizes.append({"name": "more", "autoscale": {"min": 0, "max": 2, "idleTimeout": "5s"}})
    return Trace("drawn", draw(tasks(jobs=len(submitted))), submitted, sizes, draw(machines()))
