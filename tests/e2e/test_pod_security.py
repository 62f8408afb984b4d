"""Pod Security has a say in these tests: where they run their clusters, it refuses what is not restricted."""

from __future__ import annotations

import json

from tests.e2e.manifests import RESTRICTED_CONTAINER, RESTRICTED_POD, cluster, cpu, gpu
from tests.e2e.programs import IMAGE
from tests.e2e.space import Space
from tests.eventually import eventually


def dry_run(space: Space, spec: dict[str, object]) -> str:
    """What the API server says against a pod; empty: it would make it."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"}, "spec": spec}
    done = space.kubectl.attempt("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    return "" if done.returncode == 0 else done.stderr


def test_a_pod_that_is_not_restricted_is_refused_where_a_cluster_gets_all_of_its_pods(space: Space) -> None:
    container = {"name": "any", "image": IMAGE}
    restricted = {"containers": [container | RESTRICTED_CONTAINER], **RESTRICTED_POD}
    # A new namespace has no service account yet, without which no pod is let in.
    eventually(lambda: not dry_run(space, restricted), "a restricted pod is let in")
    assert 'violates PodSecurity "restricted' in dry_run(space, {"containers": [container]})

    space.apply(cluster("strict", cpu(), gpu(autoscale={"min": 1, "max": 1})))
    space.wait_ready("strict")
    for pool in ("cpu", "gpu"):
        space.wait_workers("strict", pool, 1)
