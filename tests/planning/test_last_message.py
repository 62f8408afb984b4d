"""A pod that does not stay up: its own words where they tell why, else what its image may lack."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.api.untrusted_text import quote
from gpudask.planning.degraded import last_message
from gpudask.planning.observed.pods import Ended
from tests.builders import a_pool
from tests.planning.builders import cluster, pod

FAILED = "RuntimeError: Worker failed to start."
RMM = "ValueError: RMM pool requested but module 'rmm' is not available."
UCXX = "with the protocol ucxx its image needs distributed-ucxx, for its CUDA version"
TRACEBACK = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'cupy'\n"


@pytest.mark.parametrize(
    ("gpu", "protocol", "log", "words"),
    [
        ({}, "tcp", "", ""),
        ({}, "tcp", f"{FAILED}\n", f"; it said: {FAILED}"),
        ({"rmmPoolSize": "1Gi"}, "tcp", f"Traceback\n{RMM}\n", f"; it said: {RMM}"),
        (
            {"rmmAllocatorFor": ["torch"]},
            "tcp",
            FAILED,
            f"; it said: {FAILED}; for RMM its image needs rmm and torch",
        ),
        (
            {"preImport": ["cupy", "mine.own"]},
            "tcp",
            FAILED,
            f"; it said: {FAILED}; its image needs what gpu.preImport names: cupy, mine.own",
        ),
        (
            {"preImport": ["cupy"]},
            "tcp",
            f"{TRACEBACK}\nThe above exception was the direct cause of another\n\n{FAILED}\n",
            "; it said: ModuleNotFoundError: No module named 'cupy'",
        ),
        (
            {"rmmPoolSize": "0.5"},
            "ucxx",
            FAILED,
            f"; it said: {FAILED}; {UCXX}; for RMM its image needs rmm",
        ),
    ],
)
def test_last_message(gpu: dict[str, Any], protocol: str, log: str, words: str):
    of = cluster(a_pool("gpu", gpu=gpu), protocol=protocol)
    assert last_message(of.spec, pod(of, "gpu", ended=Ended("Error", 1, log))) == words


def test_a_pod_without_gpus_is_not_told_what_gpus_need():
    of = cluster(a_pool("cpu"), a_pool("gpu", gpu={"preImport": ["cupy"]}))
    assert last_message(of.spec, pod(of, "cpu", ended=Ended("Error", 1, FAILED))) == f"; it said: {FAILED}"


@pytest.mark.parametrize("log", ["x\n\x1b[31mred\x1b[0m\u202e" + "y" * 900, "ImportError: \x1b[31m" + "y" * 900])
def test_a_log_is_quoted_in_one_short_clean_line(log: str):
    of = cluster(a_pool("gpu", gpu={}))
    said = last_message(of.spec, pod(of, "gpu", ended=Ended("Error", 1, log))).removeprefix("; it said: ")
    assert said == quote(said)
