"""`KubeCluster` in a pod: all that it does, and what it does when the scheduler or the operator goes.

The programs are in in_pods/; they have the rights that docs/kubecluster.md names, and no others.
"""

from __future__ import annotations

from gpudask.api import Json

import json
import re
from pathlib import Path

import pytest

from tests.docs.rights import documented_rules
from tests.e2e.manifests import OPEN_TO_NEIGHBOURS, QUICK_END, cluster, cpu, gpu
from tests.e2e.accounts import account
from tests.e2e.programs import IMAGE, Program
from tests.e2e.space import Space

_PROGRAMS = Path(__file__).with_name("in_pods")
_RECOVERS_SECONDS = 120


@pytest.mark.alone  # its clusters ask for the whole cores of the defaults
def test_a_pod_does_all_that_kubecluster_does(space: Space) -> None:
    namespace = space.kubectl.namespace
    pools = [pool | {"template": QUICK_END} for pool in cluster("full", cpu(), gpu())["spec"]["pools"]]
    program = Program.start(
        space,
        _PROGRAMS / "everything.py",
        IMAGE,
        json.dumps(pools),
        user=account(space, "user", documented_rules()),
        environment={"DASK_GPUDASK__IMAGE": IMAGE},
    )
    seen = program.lines(seconds=400)
    everything = program.printed()

    name = _only(
        rf"created cluster '(.+)' in namespace '{namespace}': image {IMAGE}, pools cpu \(1 to 4 pods\)", everything
    )
    assert seen["bare"] == f"on a CPU worker at tcp://{name}-scheduler.{namespace}.svc:8786"
    assert f"no cluster '{name}'" in seen["its end deleted it"]

    assert seen["created"] == "on a CPU worker"
    assert seen["scaled"] == "on a GPU worker"
    assert seen["held"] == "1 on a GPU worker"
    assert re.fullmatch(r"KubeCluster\(full, 'tcp://full-scheduler\..+:8786', cpu=1, gpu=\d, more=1\)", seen["added"])
    assert re.fullmatch(r"KubeCluster\(full, .+, cpu=1, gpu=\d\)", seen["removed"])
    assert "has no pool 'more': its pools are cpu, gpu" in seen["a pool that is not there"]
    assert re.fullmatch(r"Cluster full-cpu-worker-\d+ full-gpu-worker-\d+ full-scheduler-\w+", seen["logs"])
    assert "Scheduler at:" in seen["the scheduler's log"]

    assert seen["in a second process"] == "3"
    assert re.search(
        r"<strong>gpu</strong></td><td>\d workers?, 0 to 2 pods \(set by dask\)", seen["what its table shows"]
    )
    assert f"cluster 'full' exists already in namespace '{namespace}'" in seen["CREATE_ONLY"]
    assert "cluster 'full' exists already: it keeps its own n_workers" in everything
    assert f"no cluster 'fool' in namespace '{namespace}': there are: full" in seen["CONNECT_ONLY"]

    assert seen["discovered"] == "full"
    assert seen["awaited"] == "3"
    assert "localhost/no/such:image" in seen["an absent image"]
    assert "no cluster 'absent'" in seen["which leaves nothing"]

    assert "cluster 'full' is suspended" in seen["suspended"]
    assert "gpudask resume full" in seen["suspended"]
    assert seen["resumed"] == "on a CPU worker"
    assert "no cluster 'full'" in seen["its owner's end deleted it"]
    assert "done" in seen


@pytest.mark.alone  # it deletes the operator
def test_a_pods_client_works_again_when_its_scheduler_and_when_the_operator_was_deleted(space: Space) -> None:
    space.apply(cluster("breaks", cpu(), network=OPEN_TO_NEIGHBOURS))
    space.wait_ready("breaks")
    least: list[Json] = [
        {"apiGroups": ["gpudask.dev"], "resources": ["gpudaskclusters"], "verbs": ["get", "patch"]},
    ]
    user = account(space, "user", least)
    program = Program.start(space, _PROGRAMS / "goes_on.py", "breaks", user=user)

    program.wait_line("in the midst of work:")
    space.kubectl("delete", "pod", *space.names("breaks"), "--wait=false")
    program.wait_line("computed again after:", seconds=_RECOVERS_SECONDS)
    assert "the scheduler went: FutureCancelledError" in program.printed()

    deleted = space.platform.delete_operator()
    program.tell("operator")
    program.wait_line("scaled again after:", seconds=_RECOVERS_SECONDS)
    space.platform.await_operator(after=deleted)
    assert program.lines()["without an operator"] == "3"


def _only(pattern: str, text: str) -> str:
    found = re.findall(pattern, text)
    assert len(found) == 1, f"{pattern}: {found} in\n{text}"
    return str(found[0])
