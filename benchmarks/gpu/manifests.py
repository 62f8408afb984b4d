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
        "uneven",
        "warm",
        "work",
    )
)
DIRECTORY = "/programs"
STAND_INS = {
    "stand_in.py": "benchmarks/gpu/stand_in.py",
    "stand_in_cupy.py": "cupy.py",
}
"""For dry runs: the keys of the ConfigMap, and where the files are for pods."""
STAND_IN_CUPY = "from benchmarks.gpu.stand_in import *\n"
"""The second of these: what a program then imports as `cupy`."""
_VOLUME = "gpu-benchmark-programs"
_SMALL = {"cpu": "100m", "memory": "1Gi"}


def cluster(name: str, image: str, template: Json, pools: list[Json], protocol: str = "tcp") -> Json:
    """A GpuDaskCluster in whose pods the programs can be imported: tasks name the module that they are from."""
    return {
        "apiVersion": "gpudask.dev/v1alpha1",
        "kind": "GpuDaskCluster",
        "metadata": {"name": name},
        "spec": {"image": image, "template": with_programs(template), "protocol": protocol, "pools": pools},
    }


def with_programs(template: Json) -> Json:
    """The template with the programs in the working directory, from which `python -m dask` imports, too."""
    theirs = template.get("spec", {})
    shared: Json = next(iter(theirs.get("containers", [])), {})
    mounts = [*shared.get("volumeMounts", []), {"name": _VOLUME, "mountPath": DIRECTORY, "readOnly": True}]
    container = shared | {"name": "dask", "workingDir": DIRECTORY, "volumeMounts": mounts}
    volumes = [*theirs.get("volumes", []), _programs_volume()]
    return template | {"spec": theirs | {"containers": [container], "volumes": volumes}}


def gpu_pool(**words: Any) -> Json:
    """A pool of pods of one GPU each."""
    return {"name": "gpu", "gpu": {"count": 1}, "resources": {"cpu": 2, "memory": "16Gi"}, **words}


def without_devices(pool: Json) -> Json:
    """The pool for a dry run, on a small machine whose GPUs are stand-ins: see `local.demo.overlay`."""
    threads = {} if "gpu" in pool else {"nthreads": pool["resources"]["cpu"]}
    return pool | threads | {"resources": _SMALL} | ({"env": no_devices(1)} if "gpu" in pool else {})


def no_devices(gpus: int) -> list[Json]:
    """dask-cuda's own switch: it starts one worker for each index, and asks no driver about them."""
    values = {
        "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in range(gpus)),
        "DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC": "1",
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def cpu_pool(replicas: int, threads: int) -> Json:
    """A pool of pods with so many threads, and a core for each."""
    memory = f"{max(2, 2 * threads)}Gi"
    return {"name": "cpu", "replicas": replicas, "resources": {"cpu": threads, "memory": memory}}


def warmed(pool: Json, module: str) -> Json:
    """The pool, its workers importing `module` before they register."""
    return pool | {"gpu": pool["gpu"] | {"preImport": [module]}}


def programs(files: dict[str, str]) -> Json:
    """The ConfigMap with the programs."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": PROGRAMS}, "data": files}


def program_pod(name: str, image: str, template: Json, arguments: list[str], *, gpus: int, python: str | None) -> Json:
    """A pod that runs `python -m` with these arguments once; without `python`, the image's own does."""
    given = with_programs(template)["spec"]
    container: Json = given["containers"][0] | {
        "image": image,
        "args": arguments,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **({"command": [python, "-m"]} if python else {}),
        **({"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}),
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        **given,
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _programs_volume() -> Json:
    """The files as `python -m` finds them: under their package's path."""
    directory = PACKAGE.replace(".", "/")
    items = [{"key": name, "path": f"{directory}/{name}"} for name in FILES]
    items += [{"key": key, "path": path} for key, path in STAND_INS.items()]  # there in a dry run only
    return {"name": _VOLUME, "configMap": {"name": PROGRAMS, "items": items, "optional": True}}
