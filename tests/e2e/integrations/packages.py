"""The packages of `requirements/client-integrations.in` in pods of the image, which has none of them.

They are mounted, as one file system that all nodes share would be: an image of 850 MB more would take minutes to build.
"""

from __future__ import annotations

from gpudask.api import Json

import copy
from pathlib import Path
from typing import Any

from tests.e2e.accounts import account
from tests.e2e.manifests import OPEN_TO_NEIGHBOURS, cluster
from tests.e2e.programs import Program
from tests.e2e.space import Space
from tests.releases.environment import Environment

RELEASE = "integrations"
PROGRAMS = Path(__file__).with_name("in_pods")
SHARED = "/shared"  # a directory that all may write
_CPU = "500m"  # of the program: Prefect's server and its imports take half a minute of a core
_MEMORY = "1Gi"  # what an orchestrator's imports take comes to Dask's own
_PACKAGES, _MODULES = "/packages", "/modules"
ENVIRONMENT = {
    "PYTHONPATH": f"{_PACKAGES}:{_MODULES}",
    "DAGSTER_HOME": SHARED,
    "OMP_NUM_THREADS": "1",
}


def mounts(shared: Path | None = None) -> dict[str, Path]:
    """Path in a pod -> path on this machine."""
    packages = Environment.ensure(RELEASE).packages
    found = {_PACKAGES: packages, _MODULES: PROGRAMS}
    return found | ({SHARED: shared} if shared else {})


def pod_spec(container: str, shared: Path | None = None) -> Json:
    """The part of a pod's spec that mounts them into a container."""
    places, volumes = [], []
    for number, (place, path) in enumerate(mounts(shared).items()):
        name = f"integrations-{number}"
        volumes.append({"name": name, "hostPath": {"path": str(path)}})
        places.append({"name": name, "mountPath": place, "readOnly": place != SHARED})
    return {"volumes": volumes, "containers": [{"name": container, "volumeMounts": places}]}


def with_packages(name: str, *pools: Json, shared: Path | None = None) -> Json:
    """A GpuDaskCluster whose pods have the packages, and that lets in programs of its namespace."""
    made = cluster(name, *pools, network=OPEN_TO_NEIGHBOURS)
    spec = made["spec"]
    spec["env"] = [{"name": key, "value": value} for key, value in ENVIRONMENT.items()]
    spec["template"] = copy.deepcopy(spec["template"])
    spec["template"].setdefault("spec", {}).update(pod_spec("dask", shared))
    for part in (spec["scheduler"], *spec["pools"]):
        part["resources"]["memory"] = _MEMORY
    return made


def start(space: Space, main: str, *arguments: str, rules: Any, shared: Path | None = None) -> Program:
    """Start a program of `in_pods/` in a pod that has the packages, with the rights of `rules`."""
    return Program.start(
        space,
        PROGRAMS / main,
        *arguments,
        user=account(space, "user", rules),
        mounts=mounts(shared),
        writable=[SHARED],
        environment=ENVIRONMENT | {"DASK_KUBERNETES__NAMESPACE": space.kubectl.namespace},
        cpu=_CPU,
    )
