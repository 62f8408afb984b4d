"""The worker pods of a pool: `dask worker`, or `dask cuda worker` where the pool has GPUs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gpudask.api import Json, addresses, resource
from gpudask.api.addresses import COMM_PORT, UCXX_PORT
from gpudask.api.gpu import DEFAULT_GPU_RESOURCE, Gpu, device_memory
from gpudask.api.pool import Pool
from gpudask.api.resource import Cluster
from gpudask.desired import disruption, names, pod, spec_hash
from gpudask.desired.spec_hash import Memo
from gpudask.launcher.script import one_process

# What stands for a pod's name, and for that of its workers, in what the pods of a pool have in common. No object of
# Kubernetes has a NUL in it.
_NAME, _DASK_NAME = "\0name", "\0dask-name"
_rendered: Memo[Json] = Memo(64)  # each as large as its spec
# What a nanny would set for its worker; ours run without one (docs/adr/0003).
_WORKER_ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "6640",  # the same for all, or a string's hash says something else on each worker
}
# A kernel is loaded when it is first used, as CUDA has it by itself since 12.2.
_CUDA_ENVIRONMENT = {"CUDA_MODULE_LOADING": "LAZY"}
_KERNELS = "/var/cache/gpudask-kernels"  # in pods whose pool has `gpu.kernelCache`
_CACHES_OF_KERNELS = {
    "CUPY_CACHE_DIR": f"{_KERNELS}/cupy",
    "CUDA_CACHE_PATH": f"{_KERNELS}/cuda",
    "NUMBA_CACHE_DIR": f"{_KERNELS}/numba",
}
_TEMPORARY = "/tmp"  # noqa: S108 - in pods


def worker_pod(cluster: Cluster, pool: Pool, index: int, nonce: str) -> Json:
    """Worker pod number `index` of `pool`; `nonce` makes its Dask name its own.

    Rendered once for all pods of the pool, who share what is the same: nobody changes it.
    """
    name = names.worker_pod(cluster.name, pool.name, index)
    whose = cluster.name, cluster.namespace, cluster.uid
    rendered = _rendered.get((cluster.spec, pool), lambda: _render(cluster, pool), more=whose)
    return _named(rendered, name, names.dask_name(name, nonce))


def _named(rendered: Json, name: str, dask_name: str) -> Json:
    """The pod with these names filled in: what holds them is copied, and nothing else."""
    meta = rendered["metadata"]
    annotations = meta["annotations"] | {resource.ANNOTATION_DASK_NAME: dask_name}
    containers = [
        _container(item, dask_name) if item["name"] == pod.MAIN_CONTAINER else item
        for item in rendered["spec"].get("containers", ())
    ]
    return rendered | {
        "metadata": meta | {"name": name, "annotations": annotations},
        "spec": rendered["spec"] | {"containers": containers},
    }


def _container(rendered: Json, dask_name: str) -> Json:
    """The main container, whose arguments and hook name its workers; a variable does where a template has its own."""
    parts = ["args", "lifecycle"]
    if any(item.get("value") == _DASK_NAME for item in rendered.get("env") or ()):
        parts.append("env")
    return rendered | {part: _filled(rendered[part], dask_name) for part in parts if rendered.get(part) is not None}


def _filled(value: Any, dask_name: str) -> Any:
    if isinstance(value, str):
        return value.replace(_DASK_NAME, dask_name)
    if isinstance(value, list):
        return [_filled(item, dask_name) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, dask_name) for key, item in value.items()}
    return value


def _render(cluster: Cluster, pool: Pool) -> Json:
    meta = pod.metadata(cluster, _NAME, "worker")
    meta["labels"] |= {
        resource.LABEL_POOL: pool.name,
        resource.LABEL_DASK_GROUP: names.worker_group(cluster.name, pool.name),
    }
    meta["labels"] |= {resource.LABEL_GPU: "true"} if pool.gpu else {}
    meta["annotations"] = {
        resource.ANNOTATION_SPEC_HASH: spec_hash.of_worker(cluster.spec, pool),
        resource.ANNOTATION_DASK_NAME: _DASK_NAME,
        **({resource.ANNOTATION_GPUS: str(pool.gpus_per_pod)} if pool.gpu else {}),
        # As long as it starts; what follows is `planning`'s.
        **disruption.eviction_protection(cluster.spec, pool, is_protected=True),
    }
    arguments = _arguments(cluster, pool, _DASK_NAME)
    container = {
        "image": pool.image or cluster.spec.image,
        "args": arguments,
        "env": pod.environment(cluster, _environment(pool), pool.env),
        "resources": _resources(pool),
    }
    rendered = pod.skeleton(cluster, meta, container)
    rendered["spec"]["terminationGracePeriodSeconds"] = disruption.GRACE_SECONDS
    _place(rendered["spec"], pool.gpu)
    if pool.shm_size is not None:
        memory = {"medium": "Memory", "sizeLimit": str(pool.shm_size)}
        _mount(rendered["spec"], {"name": "gpudask-shm", "emptyDir": memory}, "/dev/shm")  # noqa: S108 - in pods
    if pool.gpu is not None and pool.gpu.kernel_cache:
        directory = {"path": pool.gpu.kernel_cache, "type": "Directory"}
        _mount(rendered["spec"], {"name": "gpudask-kernels", "hostPath": directory}, _KERNELS)
    whole = pod.with_templates(rendered, cluster.spec.template, pool.template)
    whole = pod.with_variables(whole, arguments, _variables(cluster, pool))
    if pool.gpu is not None and pool.gpu.is_one_process:
        _run_in_one_process(whole, arguments, before=pool.extra_args)
    return disruption.with_drain_hook(whole, addresses.scheduler_host(cluster.name, cluster.namespace), _DASK_NAME)


def _arguments(cluster: Cluster, pool: Pool, dask_name: str) -> list[str]:
    cuda = pool.gpu is not None and pool.gpu.is_of_dask_cuda
    arguments = ["dask", *(["cuda"] if cuda else []), "worker", _address(cluster, pool), "--name", dask_name]
    arguments += ["--nthreads", str(pool.threads_per_worker)]
    if pool.memory_per_worker is not None:
        arguments += ["--memory-limit", str(pool.memory_per_worker)]
    if not cuda:
        arguments += ["--no-nanny"]
    if pool.offered_resources:
        offers = " ".join(f"{key}={value:.15g}" for key, value in sorted(pool.offered_resources.items()))
        arguments += ["--resources", offers]
    protocol = cluster.spec.protocol_of(pool)
    if protocol != "tcp":
        arguments += ["--protocol", protocol]
    if cuda and pool.gpu is not None:
        arguments += _device_options(pool.gpu)
    return [*arguments, *pool.extra_args]


def _address(cluster: Cluster, pool: Pool) -> str:
    """The address at which workers of `pool` find the scheduler."""
    protocol = cluster.spec.protocol_of(pool)
    port = UCXX_PORT if cluster.spec.own_protocol(pool) else COMM_PORT
    return addresses.scheduler_address(cluster.name, cluster.namespace, protocol, port)


def _variables(cluster: Cluster, pool: Pool) -> dict[str, str]:
    """What a command of a template's own finds: two names as the stock operator's, and Dask's configuration."""
    found = {"DASK_SCHEDULER_ADDRESS": _address(cluster, pool), "DASK_WORKER_NAME": _DASK_NAME}
    if pool.offered_resources:
        found["DASK_DISTRIBUTED__WORKER__RESOURCES"] = json.dumps(pool.offered_resources, sort_keys=True)
    return found


def _run_in_one_process(whole: Json, arguments: list[str], before: Sequence[str]) -> None:
    """Have `dask cuda worker` run the pod's worker in its own process; `before`: the end of its `arguments`.

    Dask writes a preload's text into a temporary file: where a pod can write none, or a template has arguments of its
    own, the command stays as it is.
    """
    found = (item for item in whole["spec"].get("containers") or () if item["name"] == pod.MAIN_CONTAINER)
    container: Json = next(found, {})
    if container.get("args") == arguments and _can_write_temporary(container):
        end = len(arguments) - len(before)
        container["args"] = [*arguments[:end], "--preload", one_process(), *arguments[end:]]


def _can_write_temporary(container: Json) -> bool:
    """Whether a container's root file system is writable, or something of its own is mounted at /tmp."""
    context, mounts = container.get("securityContext"), container.get("volumeMounts")
    is_read_only = isinstance(context, dict) and bool(context.get("readOnlyRootFilesystem"))
    places = [item.get("mountPath") for item in mounts if isinstance(item, dict)] if isinstance(mounts, list) else []
    return not is_read_only or _TEMPORARY in places


def _device_options(gpu: Gpu) -> list[str]:
    """The options of `dask cuda worker`; bytes are written out, since Dask's units are not all Kubernetes'."""
    amounts = {"--device-memory-limit": gpu.device_memory_limit, "--rmm-pool-size": gpu.rmm_pool_size}
    lists: dict[str, Sequence[str]] = {
        "--set-rmm-allocator-for-libs": gpu.rmm_allocator_for,
        "--pre-import": gpu.pre_import,
    }
    options = [[flag, str(device_memory(amount))] for flag, amount in amounts.items() if amount is not None]
    options += [[flag, ",".join(names)] for flag, names in lists.items() if names]
    return [word for option in options for word in option]


def _environment(pool: Pool) -> list[Json]:
    values = dict(_WORKER_ENVIRONMENT)
    if pool.gpu is not None and pool.gpu.is_of_dask_cuda:
        values |= _CUDA_ENVIRONMENT
    if pool.gpu is not None and pool.gpu.kernel_cache:
        values |= _CACHES_OF_KERNELS
    return [{"name": key, "value": value} for key, value in values.items()]


def _resources(pool: Pool) -> Json:
    rendered = pod.resources(pool.resources)
    if pool.gpu is not None:
        rendered.setdefault("limits", {})[pool.gpu.resource_name] = str(pool.gpu.count)
    return rendered


def _place(pod_spec: Json, gpu: Gpu | None) -> None:
    if gpu is None:
        pod_spec["affinity"] = pod.away_from_gpus()
        return
    pod_spec["affinity"] = pod.near_gpu_pods()
    if gpu.node_selector:
        pod_spec["nodeSelector"] = dict(gpu.node_selector)
    taints = sorted({DEFAULT_GPU_RESOURCE, gpu.resource_name})
    pod_spec["tolerations"] = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in taints]


def _mount(pod_spec: Json, volume: Json, path: str) -> None:
    """Add a volume, for the main container at `path`."""
    pod_spec.setdefault("volumes", []).append(volume)
    pod_spec["containers"][0].setdefault("volumeMounts", []).append({"name": volume["name"], "mountPath": path})
