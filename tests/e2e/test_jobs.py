"""Jobs on a real cluster: a program's answer, its exit codes, and kubectl's wait."""

from __future__ import annotations

import time
from typing import Any

from tests.e2e.manifests import job
from tests.e2e.space import Space

_ANSWER = "from distributed import Client; print('the answer is', Client().submit(sum, [40, 2]).result(timeout=120))"
_FAILS = "from distributed import Client; Client(); raise SystemExit(7)"


def _status(space: Space, name: str) -> dict[str, Any]:
    return dict(space.find("gpudaskjobs", name)["status"])


def test_a_job_gives_its_answer_and_its_cluster_back(space: Space) -> None:
    space.apply(job("sums", _ANSWER))
    space.kubectl("wait", "--for=condition=Complete", "gdj/sums", "--timeout=300s")
    began = time.monotonic()
    space.wait(lambda: not space.names("sums", "cpu"), "its workers are gone")
    print(f"the workers were gone {time.monotonic() - began:.1f} s after kubectl saw the end")
    status = _status(space, "sums")
    assert (status["attempts"], status["runner"]["exitCode"]) == (1, 0)
    assert "the answer is 42" in status["runner"]["lastLines"]
    space.wait(lambda: space.get("gpudaskclusters") == [], "its cluster is gone")


def test_a_job_that_fails_is_tried_again_and_says_its_exit_code(space: Space) -> None:
    space.apply(job("fails", _FAILS, retries=1))
    space.kubectl("wait", "--for=condition=Failed", "gdj/fails", "--timeout=300s")
    status = _status(space, "fails")
    assert (status["attempts"], status["failures"], status["runner"]["exitCode"]) == (2, 2, 7)
    assert status["reason"] == "RetriesSpent"
    space.wait(lambda: space.get("gpudaskclusters") == [], "no cluster is left")


def test_jobs_whose_runners_fill_the_quota_all_end(space: Space) -> None:
    """Their runners are made first, and leave no room for a scheduler until one of them makes room.

    That place is the scheduler's, and not for its worker, which finds none.
    """
    space.limit("few", {"pods": "2"})
    names = ("one", "two")
    jobs = [job(name, "from distributed import Client; Client()") for name in names]
    space.apply({"apiVersion": "v1", "kind": "List", "items": jobs})
    waited = [f"gdj/{name}" for name in names]
    space.kubectl("wait", "--for=condition=Complete", *waited, "--timeout=600s")
    assert [_status(space, name)["attempts"] for name in names] == [1, 1]


def test_a_cron_job_makes_a_job_each_minute_and_none_while_it_is_suspended(space: Space) -> None:
    template = {"spec": job("unused", _ANSWER)["spec"]}
    spec = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": template}
    space.apply(
        {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskCronJob", "metadata": {"name": "minutely"}, "spec": spec}
    )
    space.wait(lambda: space.get("gpudaskjobs"), "the first minute has come", seconds=150)
    space.kubectl("patch", "gpudaskcronjob", "minutely", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    made = [body["metadata"]["name"] for body in space.get("gpudaskjobs")]
    space.kubectl("wait", "--for=condition=Complete", *(f"gdj/{name}" for name in made), "--timeout=300s")
    assert "the answer is 42" in _status(space, made[0])["runner"]["lastLines"]

    def is_success_recorded() -> bool:  # a write of its own, after the job's
        (body,) = space.get("gpudaskcronjobs")
        return bool(body["status"]["lastSuccessfulTime"] >= body["status"]["lastScheduleTime"])

    space.wait(is_success_recorded, "the cron job records its job's success")
    assert [each["metadata"]["name"] for each in space.get("gpudaskjobs")] == made
    space.kubectl("delete", "gpudaskcronjob", "minutely")
    space.wait(lambda: not space.get("gpudaskjobs"), "its jobs go with it")
