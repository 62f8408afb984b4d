"""A scheduler that cannot come back, seen from outside and from a pod: within 30 s an error that names the cause."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from distributed import Client
from distributed.client import FutureCancelledError

from gpudask import KubeCluster, KubeClusterError
from tests.docs.rights import documented_rules
from tests.e2e.accounts import account
from tests.e2e.manifests import OPEN_TO_NEIGHBOURS, cluster, cpu
from tests.e2e.programs import Program
from tests.e2e.space import Space

_NAMED_SECONDS = 45  # half a minute by the client, and what a busy machine adds
_CAUSE = "scheduler: no node can take it: .*didn't match Pod's node affinity/selector"


def test_a_scheduler_that_cannot_come_back_is_the_cause_that_programs_are_told(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in a pod and one outside, each with a cluster of its own: they wait side by side."""
    monkeypatch.setenv("KUBECONFIG", str(space.kubectl.kubeconfig))
    for name in ("inside", "outside"):
        space.apply(cluster(name, cpu(), network=OPEN_TO_NEIGHBOURS))
    space.wait_ready("inside")
    user = account(space, "user", documented_rules())
    program = Program.start(space, Path(__file__).with_name("in_pods") / "loses_scheduler.py", "inside", user=user)
    program.wait_line("it works:")
    _lose_scheduler(space, "inside")

    space.wait_ready("outside")
    _is_told_outside(space)

    seen = program.lines(seconds=100)
    for what in ("a task", "a client"):
        seconds, error = re.fullmatch(r"([0-9.]+) s, (.*)", seen[what]).groups()
        assert re.search(_CAUSE, error), error
        assert float(seconds) < _NAMED_SECONDS


def _is_told_outside(space: Space) -> None:
    with KubeCluster.from_name("outside", namespace=space.kubectl.namespace, quiet=True) as found:
        with Client(found) as client:
            busy = client.submit(time.sleep, 600)
            found.wait_for_workers(1, timeout=60)
            _lose_scheduler(space, "outside")
            with pytest.raises(FutureCancelledError):
                busy.result(timeout=60)
            lost = time.monotonic()
            with pytest.raises(FutureCancelledError, match=_CAUSE):
                client.submit(sum, [1, 2], pure=False).result(timeout=60)
            assert time.monotonic() - lost < _NAMED_SECONDS

        asked = time.monotonic()
        with pytest.raises(KubeClusterError, match=_CAUSE):
            Client(found)
        assert time.monotonic() - asked < _NAMED_SECONDS
        with pytest.raises(KubeClusterError, match=_CAUSE):
            found.wait_for_workers(1, timeout=1)

        _place_scheduler(space, "outside", None)
        space.wait_ready("outside")
        with Client(found) as client:
            assert client.submit(sum, [1, 2]).result(timeout=60) == 3


def _lose_scheduler(space: Space, name: str) -> None:
    _place_scheduler(space, name, "here")
    space.kubectl("delete", "pod", *space.names(name), "--grace-period=1", "--wait=false")


def _place_scheduler(space: Space, name: str, where: str | None) -> None:
    """Let the scheduler's pods run on nodes with this label alone; None: on any again."""
    template = {"spec": {"nodeSelector": {"nowhere.example/is": where}}}
    patch = json.dumps({"spec": {"scheduler": {"template": template}}})
    space.kubectl("patch", "gdc", name, "--type=merge", "-p", patch)
