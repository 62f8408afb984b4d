"""What the pipeline thinks of a scheduler's record."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "examples" / "mixed_pipeline.py"


@pytest.fixture(scope="module")
def pipeline() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mixed_pipeline", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_gpu_step_whose_annotation_was_lost_is_named(pipeline: ModuleType):
    assert pipeline.misplaced([("fourier_gram", "demo-gpu-worker-0-aaaaa-0", {})], "gpu") == [
        "a fourier_gram task reached the scheduler without its annotation (it asked for {})"
    ]


def test_a_record_without_gpu_steps_is_no_success(pipeline: ModuleType):
    assert pipeline.misplaced([("load", "demo-cpu-worker-0-aaaaa", {})], "gpu") == [
        "no fourier_gram task is in the scheduler's record"
    ]


def test_plain_steps_may_run_anywhere(pipeline: ModuleType):
    runs = [("load", "demo-gpu-worker-0-aaaaa-0", {}), ("fourier_gram", "demo-gpu-worker-0-aaaaa-0", {"GPU": 1.0})]

    assert pipeline.misplaced(runs, "gpu") == []


def test_a_worker_of_another_naming_is_of_no_pool(pipeline: ModuleType):
    assert pipeline.pool_of("tcp://10.0.0.1:4000") == "?"


def test_without_a_device_the_arrays_are_numpys(pipeline: ModuleType):
    assert pipeline.array_module() is np
