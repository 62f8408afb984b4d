"""A cluster with a day behind it, as its status and its record would tell it; the screenshots of the docs are of it."""

from __future__ import annotations

import math
import random
from typing import Any

from gpudask.api import Json
from gpudask.cli.cost import ledgers
from gpudask.cli.cost.ledgers import ClusterLedger
from gpudask.cli.report import record
from gpudask.cli.report.record import Record
from tests.cli.cost.builders import a_record, at

SCRIPT = "<script>alert(1)</script>"
HOSTILE = f"{SCRIPT}\"'><img src=http://198.51.100.1/x onerror=alert(2)>{{{{ 7*7 }}}}\x1b[31m\u202e"
PRICES = {
    "currency": "EUR",
    "default": 2.5,
    "rules": [{"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H200"}, "perGpuHour": 4.2}],
}
_HOURS = 9.0
_OF_GPU = {
    "working": 31.4,
    "unhealthy": 0.35,
    "starting": 2.6,
    "draining": 0.9,
    "heldResult": 3.1,
    "heldByUser": 4.0,
    "spare": 0.0,
    "waitingIdleTimeout": 5.2,
}
_OF_BIG = {"working": 5.6, "starting": 0.8, "spare": 6.1, "waitingIdleTimeout": 0.7}
_OWNERS = {"vision": 17.2, "speech": 8.1, "ada": 3.4, "": 2.7}


def a_days_record(name: str = "demo", *, ended: bool = True) -> Json:
    """A record with something of everything."""
    draw = random.Random(7)  # noqa: S311 - the same each time
    pods = [_pod(draw, number) for number in range(60)]
    return a_record(
        _pool("gpu", "NVIDIA-L40S", _OF_GPU, _OWNERS),
        _pool("big", "NVIDIA-H200", _OF_BIG, {"vision": 5.6}),
        name=name,
        created=-_HOURS,
        ended=0 if ended else None,
        cluster={"attribution": {"team": "vision", "project": "satellites", "user": "ada"}},
        updated=at(0),
        samples=[_sample(draw, index / 240) for index in range(241)],
        pods=[*pods, *_crashes(name)],
        events=_events(),
        tasks=_tasks(),
        errors=[
            {
                "at": at(-2.2),
                "key": "embed-7f2c1a90b4",
                "exception": "MemoryError('std::bad_alloc: out_of_memory: CUDA error (failed to allocate 2.1 GB)')",
                "traceback": '  File "/opt/pipeline/embed.py", line 88, in embed\n    scores = model(batch)\n'
                "MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate 2.1 GB)",
                "worker": "demo-gpu-worker-3-1f2e0",
            },
            {
                "at": at(-5.1),
                "key": "read-tile-0091",
                "exception": "FileNotFoundError('/data/tiles/0091.tif')",
                "traceback": '  File "/opt/pipeline/read.py", line 12, in read_tile\n    return open(path, "rb")',
                "worker": "demo-cpu-worker-11-99aa1",
            },
        ],
    )


def a_hostile_record() -> Json:
    """The same, with markup in every text that a tenant can write."""
    return _with_markup(a_days_record("demo"))


def _with_markup(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _with_markup(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_markup(item, key) for item in value]
    is_known = key in ("uid", "cause", "created", "began", "ended", "updated", "started", "at")
    return f"{value} {HOSTILE}" if isinstance(value, str) and not is_known else value


def _pool(name: str, product: str, causes: dict[str, float], owners: dict[str, float]) -> Json:
    return {
        "name": name,
        "gpus": 1,
        "nodeSelector": {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": product},
        "causes": [{"cause": cause, "gpuSeconds": hours * 3600} for cause, hours in causes.items() if hours],
        "owners": [{"owner": owner, "gpuSeconds": hours * 3600} for owner, hours in owners.items()],
    }


def _sample(draw: random.Random, share: float) -> Json:
    wave = max(0.0, math.sin(share * math.pi * 4.4) + 0.18 * math.sin(share * 61))
    held = round(8 * wave)
    busy = min(held, max(0, held - draw.choice([0, 0, 0, 1, 1, 2])))
    waiting = round(420 * max(0.0, math.sin(share * math.pi * 4.4 + 0.5)) * (0.7 + 0.5 * draw.random()))
    busy_big = 1 if 0.45 < share < 0.75 and draw.random() > 0.1 else 0
    return {
        "at": at(-_HOURS * (1 - share)),
        "pools": [
            _pool_sample("cpu", 2 + round(10 * wave), (round(waiting * 0.4), 8 + round(80 * wave)), (0, 0)),
            _pool_sample("gpu", held, (waiting // 4 if held else 0, busy * 2), (held, busy)),
            _pool_sample(
                "big", 2 if 0.4 < share < 0.8 else 1, (0, busy_big), (2 if 0.42 < share < 0.8 else 1, busy_big)
            ),
        ],
    }


def _pool_sample(name: str, desired: int, tasks: tuple[int, int], gpus: tuple[int, int]) -> Json:
    ready = max(0, desired - (1 if tasks[0] > 250 else 0))
    return {
        "name": name,
        "desired": desired,
        "ready": ready,
        "waiting": tasks[0],
        "running": tasks[1],
        "gpusHeld": gpus[0],
        "gpusBusy": gpus[1],
    }


def _pod(draw: random.Random, number: int) -> Json:
    created = -_HOURS * draw.random()
    start = draw.lognormvariate(3.2, 0.7) / 3600
    lived = draw.uniform(0.2, 0.9)
    idle = draw.lognormvariate(4.6, 1.0)
    return {
        "pod": f"demo-gpu-worker-{number}",
        "pool": "gpu",
        "node": f"node-{number % 4}",
        "created": at(created),
        "started": at(created + start),
        "ended": at(min(0.0, created + start + lived)),
        "reason": "Drained" if number % 9 else "Cancelled",
        "exitCode": 0,
        "gpuSeconds": [
            {"cause": "working", "gpuSeconds": lived * 2600},
            {"cause": "starting", "gpuSeconds": start * 3600},
            {"cause": draw.choice(["heldResult", "waitingIdleTimeout", "waitingIdleTimeout"]), "gpuSeconds": idle},
            {"cause": "draining", "gpuSeconds": idle / 6},
        ],
    }


def _crashes(name: str) -> list[Json]:
    return [
        {
            "pod": f"{name}-gpu-worker-3",
            "pool": "gpu",
            "node": "node-2",
            "created": at(-3.1),
            "started": at(-3.09),
            "ended": at(-2.2),
            "reason": "OOMKilled",
            "exitCode": 137,
            "log": "distributed.worker.memory - WARNING - Unmanaged memory use is high: 58.9 GiB of 64.00 GiB\n"
            "distributed.worker.memory - WARNING - Worker is at 96% memory usage. Pausing worker.",
        },
        {
            "pod": f"{name}-big-worker-0",
            "pool": "big",
            "node": "node-7",
            "created": at(-7),
            "started": at(-6.9),
            "ended": at(-4.4),
            "reason": "NodeLost",
            "message": "node node-7 is gone: no kubelet told how it ended, and no log is left",
        },
    ]


def _events() -> list[Json]:
    told = [
        (-8.99, "Normal", "ScaledUp", "pool gpu from 0 to 4 pods: 212 tasks wait, about 40 s of work each"),
        (-8.6, "Normal", "ScaledUp", "pool gpu from 4 to 8 pods: 380 tasks wait"),
        (-4.4, "Warning", "PodFailed", "pod demo-big-worker-0 ended with its node node-7"),
        (
            -3.4,
            "Warning",
            "Unschedulable",
            "pool gpu: 1 pod pending, 0/8 nodes are available: Insufficient nvidia.com/gpu",
        ),
        (-2.2, "Warning", "OutOfMemory", "pod demo-gpu-worker-3 was killed: its container used 64Gi of memory"),
        (-0.4, "Normal", "ScaledDown", "pool gpu from 3 to 0 pods: idle for 60 s"),
    ]
    return [{"at": at(when), "type": kind, "reason": reason, "message": said} for when, kind, reason, said in told]


def _tasks() -> list[Json]:
    told = [
        ("embed", 18240, 3, 98200.0),
        ("read-tile", 36480, 1, 41800.0),
        ("normalize", 36480, 0, 12050.0),
        ("assemble", 1520, 0, 7320.0),
        ("write-parquet", 1520, 0, 2210.0),
        ("sum-aggregate", 96, 0, 84.0),
    ]
    return [{"prefix": prefix, "tasks": many, "erred": erred, "seconds": took} for prefix, many, erred, took in told]


def a_days_cluster(name: str = "demo") -> Json:
    """The same cluster while it is there."""
    pools = [
        {
            "name": "cpu",
            "desired": 4,
            "ready": 4,
            "demand": {"waiting": 12, "running": 32},
            "reason": "44 tasks",
        },
        {
            "name": "gpu",
            "desired": 3,
            "ready": 3,
            "gpusHeld": 3,
            "gpusBusy": 2,
            "demand": {"waiting": 5, "running": 2},
            "reason": "7 tasks of known duration",
            "held": "demo-gpu-worker-1: 3 results of type cupy.ndarray",
            "causes": [
                {"cause": "working", "gpus": 2, "gpuSeconds": 100.0},
                {"cause": "heldResult", "gpus": 1, "gpuSeconds": 50.0},
            ],
        },
    ]
    conditions = [
        {"type": "Degraded", "status": "True", "reason": "PodsFailing", "message": "pod demo-gpu-worker-3 was killed"},
    ]
    return {
        "metadata": {"name": name, "namespace": "lab", "uid": f"uid-of-{name}", "creationTimestamp": at(-_HOURS)},
        "spec": {"pools": [{"name": "cpu"}, {"name": "gpu", "gpu": {"count": 1}}]},
        "status": {"pools": pools, "conditions": conditions},
    }


def of_record(body: Json) -> tuple[ClusterLedger, None, Record]:
    """What a page needs of a cluster that ended."""
    return ledgers.of_record(body), None, record.parse(body)
