"""The objects that are applied: clusters, and pods that run a program. Pure."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

NAMESPACE = "gpu-benchmark"
PROGRAMS = "gpu-benchmark-programs"
PACKAGE = "benchmarks.gpu.programs"
FILES = tuple(
    f"{name}.py"
    for name in (
        "compute",
        "cpu",
        "first_task",
        "peer_copy",
        "pipeline",
        "retirement",
        "session",
        "transfer",
        "warm",
        "work",
    )
)
_DIRECTORY = "/programs"
_VOLUME = "gpu-benchmark-programs"


def cluster(name: str, image: str, template: Json, pools: list[Json]) -> Json:
    """A GpuDaskCluster."""
    return {
        "apiVersion": "gpudask.dev/v1alpha1",
        "kind": "GpuDaskCluster",
        "metadata": {"name": name},
        "spec": {"image": image, "template": template, "pools": pools},
    }


def gpu_pool(**words: Any) -> Json:
    """A pool of pods of one GPU each."""
    return {"name": "gpu", "gpu": {"count": 1}, "resources": {"cpu": 2, "memory": "16Gi"}, **words}


def cpu_pool(replicas: int, threads: int) -> Json:
    """A pool of pods with so many threads, and a core for each."""
    memory = f"{max(2, 2 * threads)}Gi"
    return {"name": "cpu", "replicas": replicas, "resources": {"cpu": threads, "memory": memory}}


def warmed(pool: Json, module: str) -> Json:
    """The pool, its workers importing `module` before they register; the programs are there to be imported."""
    mounts = [{"name": _VOLUME, "mountPath": _DIRECTORY, "readOnly": True}]
    container = {"name": "dask", "workingDir": _DIRECTORY, "volumeMounts": mounts}
    template = {"spec": {"containers": [container], "volumes": [_programs_volume()]}}
    return pool | {"extraArgs": ["--pre-import", module], "template": template}


def programs(files: dict[str, str]) -> Json:
    """The ConfigMap with the programs."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": PROGRAMS}, "data": files}


def program_pod(name: str, image: str, template: Json, arguments: list[str], *, gpus: int, python: str | None) -> Json:
    """A pod that runs `python -m` with these arguments once; without `python`, the image's own does."""
    own: Json = {
        "name": "dask",
        "image": image,
        "args": arguments,
        "workingDir": _DIRECTORY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": _VOLUME, "mountPath": _DIRECTORY, "readOnly": True}],
        **({"command": [python, "-m"]} if python else {}),
        **({"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}),
    }
    theirs = template.get("spec", {})
    shared: Json = next(iter(theirs.get("containers", [])), {})
    container = shared | own | {"volumeMounts": [*shared.get("volumeMounts", []), *own["volumeMounts"]]}
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        **theirs,
        "containers": [container],
        "volumes": [*theirs.get("volumes", []), _programs_volume()],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _programs_volume() -> Json:
    """The files as `python -m` finds them: under their package's path."""
    directory = PACKAGE.replace(".", "/")
    items = [{"key": name, "path": f"{directory}/{name}"} for name in FILES]
    return {"name": _VOLUME, "configMap": {"name": PROGRAMS, "items": items}}
