"""Attacks by an editor of one namespace on the real cluster, beside the clusters of another.

The attacks are those of `tests/hostile`; here real pods run the hostile schedulers, real kubelets what else there is,
and the victim computes on its GPU pod. Those that wear the API server down for minutes are left to `make hostile`.
"""

from __future__ import annotations

import asyncio
import copy
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

import pytest

from gpudask.api import Json
from gpudask.api.resource import KIND
from local.operator.release import NAMESPACE
from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.platform import Platform
from tests.e2e.programs import IMAGE
from tests.e2e.space import Space
from tests.eventually import eventually
from tests.hostile import impostor
from tests.hostile.attack import MARK, OWN, Attack, Attacker, Expected
from tests.hostile.attacks import ALL
from tests.hostile.impostor import ASKED, SILENT
from tests.hostile.platform import editing
from tests.hostile.victim import KEEPER, Times, medians

pytestmark = [pytest.mark.alone, pytest.mark.quiet]  # it compares times, and reads logs

_FIT = [
    attack
    for attack in ALL
    if not attack.heavy and attack.section != "churn" and "finalizers" not in repr(attack.requests)
]
# Each run takes the same: half of the schedulers and a quarter of the rest, in batches that mix all kinds. More pods at
# a time than such a batch brings would be a load of the kubelets', whoever made them.
ATTACKS = [
    *[attack for attack in _FIT if attack.schedulers][::2],
    *[attack for attack in _FIT if not attack.schedulers][::4],
]
BATCHES = [ATTACKS[n::3] for n in range(3)]
# Steps take longer where the kubelets try again and again to start thirty pods whose images are missing.
FLOOR_SECONDS = 12.0
_DEFECT = re.compile(r"Traceback|a defect|never retrieved|Unclosed|CRITICAL")
_CODE = "impostor"
# What an administrator gives a namespace: without it, its users may take every GPU there is by pods of their own.
_QUOTA: Json = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "fair"},
    "spec": {"hard": {"requests.nvidia.com/gpu": "2", "requests.cpu": "1", "requests.memory": "4Gi", "pods": "40"}},
}
_DEFAULTS: Json = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "small"},
    "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "5m", "memory": "10Mi"}}]},
}


@dataclass(frozen=True)
class Victim:
    """Somebody else's namespace: one cluster that stays, and clusters that come and go."""

    space: Space

    def settle(self) -> None:
        self.space.apply(cluster(KEEPER, cpu(), gpu(replicas=1)))
        self.space.wait_ready(KEEPER)
        self.space.wait_workers(KEEPER, "gpu", 1)

    def round(self, name: str) -> Times:
        """A cluster comes, gives a result of its first GPU pod, and goes."""
        began = time.monotonic()
        self.space.apply(cluster(name, cpu(), gpu()))
        self.space.wait_ready(name)
        with self.space.client(name) as client:
            created = time.monotonic()
            assert client.submit(sum, (1, 2), resources={"GPU": 1}, pure=False).result(timeout=90) == 3
            computed = time.monotonic()
        self.space.kubectl("delete", "gdc", name, "--wait=false")
        self.space.wait(lambda: not self._left(name), f"nothing is left of {name}")
        return Times(created - began, computed - created, time.monotonic() - computed)

    def objects(self) -> str:
        """All that is in the namespace, as JSON."""
        kinds = "pods,services,configmaps,gpudaskclusters,events.events.k8s.io"
        return self.space.kubectl("get", kinds, "-o", "json").stdout

    def _left(self, name: str) -> list[str]:
        listed = self.space.platform.provider.get(f"/api/v1/namespaces/{self.space.kubectl.namespace}/pods")
        names = (pod["metadata"]["name"] for pod in (listed or {})["items"])
        return [each for each in names if each.startswith(f"{name}-")]


@dataclass
class Operators:
    """The operators' pods: that none ends, and what they log."""

    platform: Platform

    def containers(self) -> dict[str, str]:
        """Pod -> its container and how often it was started."""
        states = (
            (pod["metadata"]["name"], pod["status"]["containerStatuses"][0]) for pod in self.platform.operator_pods()
        )
        return {name: f"{state.get('containerID')} {state['restartCount']}" for name, state in states}

    def defects(self, since: str) -> list[str]:
        """Lines of the logs that should not be there, after a moment in RFC 3339."""
        operator = self.platform.kubectl.inside(NAMESPACE)
        written = operator("logs", "-l", "app.kubernetes.io/name=gpudask", f"--since-time={since}", "--tail=-1").stdout
        return [line for line in written.splitlines() if _DEFECT.search(line)]


@contextmanager
def camping(platform: Platform) -> Iterator[Space]:
    """The attackers' namespace, with the limits that Kubernetes has for one, and their own cluster, which runs."""
    # The widest Pod Security: nothing but the operator's part is in the way.
    with Space.opened(platform, pod_security="privileged") as camp:
        code = {"data": {"impostor.py": Path(impostor.__file__).read_text()}, "metadata": {"name": _CODE}}
        for body in (_QUOTA, _DEFAULTS, {"apiVersion": "v1", "kind": "ConfigMap", **code}):
            camp.apply(body)
        camp.apply(cluster(OWN, cpu(), gpu()))
        camp.wait_ready(OWN)
        try:
            yield camp
        finally:  # the namespace goes next, and what the kubelets cannot start needs no time to end
            camp.kubectl.attempt("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")


def armed(attack: Attack) -> Attack:
    """`attack` for this machine: its pods ask for little, and its hostile schedulers are programs of real pods."""
    requests = [replace(request, body=copy.deepcopy(request.body)) for request in attack.requests]
    for request in requests:
        body = request.body
        if isinstance(body, dict) and body.get("kind") == KIND and request.method == "POST":
            _shrink(body["spec"])
            answers = attack.schedulers.get(body["metadata"]["name"])
            if answers is not None:
                _arm(body["spec"], answers)
    return replace(attack, requests=tuple(requests))


def _shrink(spec: Json) -> None:
    """Have room for many of them within the namespace's quota, where the attack says nothing of resources itself."""
    parts = [spec.setdefault("scheduler", {}), *(spec["pools"] if isinstance(spec.get("pools"), list) else [])]
    for part in parts:
        if isinstance(part, dict):
            part.setdefault("resources", {"cpu": "5m", "memory": "48Mi"})


def _arm(spec: Json, answers: str) -> None:
    """Let the scheduler be an impostor, whose workers have no image."""
    container = {"name": "dask", "command": ["python", "/hostile/impostor.py", answers], "args": []}
    container["volumeMounts"] = [{"name": "hostile", "mountPath": "/hostile"}]
    volume = {"name": "hostile", "configMap": {"name": _CODE}}
    spec |= {"imagePullPolicy": "Never", "image": "localhost/none:1"}
    spec["scheduler"] |= {
        "image": IMAGE,
        "resources": {"cpu": "5m", "memory": "192Mi"},  # it makes a gzip bomb of 50 MB
        "template": {"spec": {"containers": [container], "volumes": [volume]}},
    }


@asynccontextmanager
async def acting(camp: Space, known: dict[str, str], attacks: Sequence[Attack]) -> AsyncIterator[list[Attacker]]:
    """All of `attacks` at once, each by a user of the namespace, until the block ends."""
    async with editing(camp.kubectl.kubeconfig, camp.kubectl) as session:
        attackers = [Attacker(session, known) for _ in attacks]
        await asyncio.gather(*map(sent, attacks, attackers))
        pairs = zip(attacks, attackers, strict=True)
        acts = [asyncio.create_task(attack.acts(attacker)) for attack, attacker in pairs if attack.acts]
        try:
            yield attackers
        finally:
            for task in acts:
                task.cancel()
            ends = await asyncio.gather(*acts, return_exceptions=True)
        assert not [end for end in ends if isinstance(end, Exception)], "an attack ended by itself"


async def sent(attack: Attack, attacker: Attacker) -> None:
    for request in attack.requests:
        await attacker.send(request)


def asked(camp: Space, schedulers: Iterable[str]) -> set[str]:
    """Of these clusters those whose hostile scheduler was asked by the operator."""
    component = "dask.org/component=scheduler"
    return {
        name
        for name in schedulers
        if ASKED in camp.kubectl.attempt("logs", "-l", f"gpudask.dev/cluster={name},{component}", "--tail=-1").stdout
    }


@pytest.fixture
def victim(space: Space) -> Victim:
    """It is there, and everything on the machine has run once."""
    found = Victim(space)
    found.settle()
    found.round("warm")
    return found


def attacked(victim: Victim, camp: Space, batch: Sequence[Attack], name: str) -> tuple[Times, list[Attacker]]:
    """A round of the victim beside `batch`, once its pods have started, and what its users were told."""
    known = known_to_attackers(victim, camp)
    answers = [item for attack in batch for item in attack.schedulers.items()]
    hostile = {cluster for cluster, answer in answers if answer != SILENT}

    def beside() -> Times:
        eventually(
            lambda: asked(camp, hostile) == hostile,
            "every hostile scheduler was asked",
            seconds=90,
            show=lambda: f"{hostile - asked(camp, hostile)}\n{camp.show()}",
        )
        return victim.round(name)

    async def act() -> tuple[Times, list[Attacker]]:
        async with acting(camp, known, [armed(attack) for attack in batch]) as attackers:
            return await asyncio.to_thread(beside), attackers

    return asyncio.run(act())


def late(times: Times, calm: Times) -> list[str]:
    """The steps of a round that took more than twice their time."""
    steps = zip(fields(Times), astuple(times), astuple(calm), strict=True)
    return [f"{step.name}: {took:.1f} s" for step, took, usual in steps if took > max(2 * usual, FLOOR_SECONDS)]


def misfired(batch: Sequence[Attack], attackers: Sequence[Attacker]) -> list[str]:
    """Attacks that were let in though they should not be, or were none."""
    pairs = list(zip(batch, attackers, strict=True))
    let_in = [f"{a.name}: let in" for a, user in pairs if a.expected is Expected.REFUSED and user.admitted]
    idle = [f"{a.name}: {user.said}" for a, user in pairs if a.expected is Expected.HARMLESS and not user.admitted]
    return let_in + idle


def test_nobody_else_feels_the_attacks(victim: Victim) -> None:
    platform = victim.space.platform
    operators = Operators(platform)
    before, kept = operators.containers(), victim.space.containers()
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    calm = medians([victim.round(f"calm-{n}") for n in range(3)])
    print(f"calm: {calm}")
    for number, batch in enumerate(BATCHES):
        with camping(platform) as camp:
            times, attackers = attacked(victim, camp, batch, f"round-{number}")
        print(f"{len(batch)} attacks: {times}")
        assert late(times, calm) == [], f"calm: {calm}"
        assert misfired(batch, attackers) == []
        assert MARK not in victim.objects(), "text of the attackers reached the victim"
        assert kept.items() <= victim.space.containers().items(), "a pod of the cluster that stays was replaced"
    assert operators.containers() == before, "an operator ended"
    assert operators.defects(since) == []


def known_to_attackers(victim: Victim, camp: Space) -> dict[str, str]:
    """What the requests of attacks leave open."""
    uid_of = "jsonpath={.metadata.uid}"
    return {
        "@NAMESPACE@": camp.kubectl.namespace,
        "@OWN_UID@": camp.kubectl("get", "gdc", OWN, "-o", uid_of).stdout,
        "@HOME@": NAMESPACE,
        "@VICTIM@": victim.space.kubectl.namespace,
        "@VICTIM_UID@": victim.space.kubectl("get", "gdc", KEEPER, "-o", uid_of).stdout,
    }
