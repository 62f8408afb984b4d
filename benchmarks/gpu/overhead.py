"""Measurement 3: the same program, tasks and GPUs under the operator and on `LocalCUDACluster`."""

from __future__ import annotations

import json

from benchmarks.gpu.compute import in_one_pod, on_operator
from benchmarks.gpu.stage import Json, Stage


def overhead(stage: Stage) -> Json:
    """All shapes on all GPUs; what the first run found about the length of tasks, the second takes over."""
    ours = on_operator(stage, "overhead", "--all-gpus")
    theirs = in_one_pod(stage, "--all-gpus", f"--repetitions={json.dumps(ours['repetitions'])}")
    return {
        "operator": ours["rows"],
        "local": theirs["rows"],
        "errors": ours["errors"] + theirs["errors"],
        "versions": ours["versions"],
    }
