"""Owner references and labels that lie: pods that say that they are the victim's, or another cluster's."""

from __future__ import annotations

import asyncio
import itertools

from gpudask.api.resource import LABEL_CLUSTER, LABEL_POOL, LABEL_SERVES
from tests.hostile.attack import OWN, Attack, Attacker, create, merge
from tests.hostile.attacks.objects import COMPONENT, owner, plain, pod, worker

_SCHEDULER = {COMPONENT: "scheduler", "dask.org/cluster-name": "keeper", LABEL_CLUSTER: "keeper"}
_THEIRS = _SCHEDULER | {LABEL_SERVES: "@VICTIM_UID@"}
_FIRST = "own-cpu-worker-0"


def _scheduler(name: str, uid: str, labels: dict[str, str], **fields: object) -> dict[str, object]:
    return pod(name, labels=labels, ownerReferences=[owner(uid, **fields)])


async def _changing_hands(attacker: Attacker) -> None:
    """A pod belongs to one cluster, to another, to none, and so on."""
    for uid in itertools.cycle(("@OWN_UID@", "@VICTIM_UID@", "00000000-0000-0000-0000-000000000000")):
        await attacker.send(merge("pods", "own-changing", {"metadata": {"ownerReferences": [owner(uid)]}}))
        await asyncio.sleep(0.1)


async def _losing_labels(attacker: Attacker) -> None:
    """A worker's label is taken off and put on, again and again."""
    for label in itertools.cycle((None, OWN, "keeper")):
        await attacker.send(merge("pods", _FIRST, {"metadata": {"labels": {LABEL_CLUSTER: label}}}))
        await asyncio.sleep(0.1)


async def _changing_pools(attacker: Attacker) -> None:
    for pool in itertools.cycle(("gpu", "cpu", "nowhere", "x" * 63, None)):
        await attacker.send(merge("pods", "own-wanders", {"metadata": {"labels": {LABEL_POOL: pool}}}))
        await asyncio.sleep(0.1)


def _owners(name: str, *bodies: dict[str, object], plural: str = "pods", group: str = "") -> Attack:
    return Attack(name, "owners", tuple(create(plural, body, group=group) for body in bodies))


ATTACKS = (
    _owners("a scheduler for the victim's cluster", _scheduler("their-scheduler", "@VICTIM_UID@", _THEIRS)),
    _owners(
        "twenty schedulers for the victim's cluster",
        *(_scheduler(f"their-scheduler-{n}", "@VICTIM_UID@", _THEIRS) for n in range(20)),
    ),
    _owners(
        "workers for the victim's cluster",
        *(worker(f"keeper-gpu-worker-{n}", pool="gpu", uid="@VICTIM_UID@") for n in range(9)),
    ),
    _owners("an owner of another version", _scheduler("version", "@VICTIM_UID@", _THEIRS, apiVersion="gpudask.dev/v9")),
    _owners("an owner of another group", _scheduler("group", "@VICTIM_UID@", _THEIRS, apiVersion="example.com/v1")),
    _owners("an owner of another kind", _scheduler("kind", "@VICTIM_UID@", _THEIRS, kind="Pod", apiVersion="v1")),
    _owners("an owner that does not control", _scheduler("loose", "@VICTIM_UID@", _THEIRS, controller=False)),
    _owners("an owner that blocks", _scheduler("blocks", "@OWN_UID@", {}, blockOwnerDeletion=False)),
    _owners("an owner with a uid that is none", _scheduler("no-uid", "../../x?a=b", _THEIRS)),
    _owners("an owner with a uid of ten thousand characters", _scheduler("long-uid", "u" * 10_000, _THEIRS)),
    _owners(
        "twenty more schedulers of its own",
        *(_scheduler(f"own-scheduler-{n}", "@OWN_UID@", {COMPONENT: "scheduler"}) for n in range(20)),
    ),
    _owners(
        "three hundred pods that nobody owns", *(pod(f"stray-{n}", labels={LABEL_POOL: "cpu"}) for n in range(300))
    ),
    _owners(
        "fifty owners of one pod",
        pod("owned", ownerReferences=[owner("@OWN_UID@"), *(owner(f"u{n}", controller=False) for n in range(50))]),
    ),
    Attack("a pod that changes hands", "owners", (create("pods", worker("own-changing")),), _changing_hands),
    Attack("a worker that loses its label", "owners", acts=_losing_labels),
    Attack("a pod that wanders from pool to pool", "owners", (create("pods", worker("own-wanders")),), _changing_pools),
    _owners(
        "a ConfigMap and a Secret of the victim's",
        plain("ConfigMap", "theirs", metadata={"ownerReferences": [owner("@VICTIM_UID@")]}, data={"x": "y" * 900_000}),
        plural="configmaps",
    ),
    _owners(
        "a budget that keeps every pod",
        plain("PodDisruptionBudget", "all", "policy/v1", spec={"minAvailable": "100%", "selector": {}}),
        plural="poddisruptionbudgets",
        group="policy/v1",
    ),
    _owners(
        "a Service for the victim's scheduler",
        plain("Service", "keeper-scheduler", spec={"selector": _THEIRS, "ports": [{"port": 8786}]}),
        plain("Service", "elsewhere", spec={"type": "ExternalName", "externalName": "keeper-scheduler.victim.svc"}),
        plural="services",
    ),
)
