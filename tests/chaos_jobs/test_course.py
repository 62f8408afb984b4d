"""A release is told with what happened meanwhile, and the time without a leader is none of its own."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.chaos_jobs.course import Course, Release, percentile_99
from tests.chaos_jobs.faults import job_of

BEGIN = datetime(2026, 1, 1, 12, 0, 0).astimezone().timestamp()
RELEASE = Release("j1", "uid", BEGIN, BEGIN + 10.0)


@pytest.mark.parametrize(
    ("away", "seconds"),
    [
        ([], 10.0),
        ([(-5.0, 2.0)], 8.0),
        ([(3.0, 4.0), (8.0, 20.0)], 7.0),
        ([(3.0, 6.0), (4.0, 5.0), (5.0, 7.0)], 6.0),
        ([(-5.0, -1.0), (11.0, 12.0)], 10.0),
    ],
)
def test_seconds_in_which_nobody_led_count_once_and_apart(away: list[tuple[float, float]], seconds: float):
    course = Course(without_leader=[(BEGIN + since, BEGIN + until) for since, until in away])
    assert course.seconds_led(RELEASE) == pytest.approx(seconds)


def test_the_log_tells_what_befell_the_job_and_when_its_operator_stood_by():
    course = Course()
    course.read_log(
        [
            "[2026-01-01 12:00:01,500] gpudask.reconcile.pa [WARNING ] jobs/j1: PATCH /x: 500 ; trying again in 0.5 s",
            "[2026-01-01 12:00:02,000] gpudask.reconcile.pa [WARNING ] jobs/j10: is another one",
            "[2026-01-01 12:00:03,000] gpudask.reconcile.el [WARNING ] the Lease could not be renewed for 10 s",
            "[2026-01-01 12:00:04,000] gpudask.reconcile.el [INFO    ] operator leads no more",
            "[2026-01-01 12:00:05,000] gpudask.reconcile.el [INFO    ] operator leads",
            "[2026-01-01 12:00:30,000] gpudask.reconcile.el [INFO    ] operator leads",
            "no line of a log",
        ]
    )
    assert course.told(RELEASE) == [
        "j1: released after 10.00 s, 8.00 s of them led",
        "    +1.50 log: PATCH /x: 500 ; trying again in 0.5 s",
        "    +3.00 no operator leads",
        "    +5.00 log: the next operator leads",
    ]


@pytest.mark.parametrize(
    ("path", "body", "job"),
    [
        ("/api/v1/namespaces/jobs/pods/j12-gpu-worker-0", b"", "j12"),
        ("/apis/gpudask.dev/v1alpha1/namespaces/jobs/gpudaskjobs/j1/status", b"[]", "j1"),
        ("/api/v1/namespaces/jobs/pods", b'{"metadata": {"name": "j3-runner-1"}}', "j3"),
        ("/api/v1/namespaces/jobs/pods/shared-scheduler", b"", ""),
        ("/api/v1/namespaces/jobs/pods", b"\xff", ""),
    ],
)
def test_a_write_is_told_of_its_job(path: str, body: bytes, job: str):
    assert job_of(path, body) == job


def test_the_99th_percentile_of_few_is_the_most():
    assert percentile_99([]) == 0.0
    assert percentile_99([3.0, 1.0, 2.0]) == 3.0
    assert percentile_99(range(200)) == 198
