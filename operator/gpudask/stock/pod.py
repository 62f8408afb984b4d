"""One stock pod, of the scheduler or of a worker group, as a section of our spec; and a worker group as a pool."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gpudask.api import Json
from gpudask.api.addresses import COMM_PORT, DASHBOARD_PORT
from gpudask.stock import autoscale, launch
from gpudask.stock.autoscale import Limits
from gpudask.stock.notes import Notes

MAIN = "dask"
POOL_LENGTH = 15
_QUOTED = 100  # characters of a command
_PARTS = ("spec", "metadata", "replicas", "service")
_NO_GPU = "the scheduler gets no GPU: it runs no task"
_SCHEDULER_PORTS = (COMM_PORT, DASHBOARD_PORT)
_OWN_LABELS = ("dask.org/", "gpudask.dev/")
_FOREIGN_ANNOTATIONS = ("kubectl.kubernetes.io/", "kopf.zalando.org/", "gpudask.dev/")


@dataclass
class Resources:
    """The resources that a pod asks for. `template`: the part of `resources` that our fields cannot say."""

    requests: Json = field(default_factory=dict)
    gpu: Json | None = None
    template: Json = field(default_factory=dict)


def _is_gpu(resource: str) -> bool:
    """True if an extended resource is a GPU or a slice of one."""
    return str(resource).startswith("nvidia.com/") or str(resource).endswith("/gpu")


def read_resources(container: Json, memory_flag: str, source: str, path: str, notes: Notes) -> Resources:
    """The resources of a worker's or the scheduler's container.

    Args:
        container: the stock one.
        memory_flag: `--memory-limit`, empty where it is not given.
        source: the object, for notes.
        path: the container's, for notes.
        notes: what has to be said.

    Raises:
        ValueError: the number of GPUs is none.
    """
    from gpudask.api.gpu import DEFAULT_GPU_RESOURCE  # noqa: PLC0415 - the models take long to load

    given = container.get("resources") or {}
    limits, requests = dict(given.get("limits") or {}), dict(given.get("requests") or {})
    resources = Resources(template={key: item for key, item in given.items() if key not in ("limits", "requests")})
    gpus: Json = {name: limits.pop(name, None) or requests.get(name) for name in [*limits, *requests] if _is_gpu(name)}
    for name in gpus:
        requests.pop(name, None)
    if len(gpus) > 1:
        notes.lost(source, f"{path}.resources.limits", f"one kind of GPU a pool: {', '.join(list(gpus)[1:])} left out")
    if gpus:
        name, count = next(iter(gpus.items()))
        resources.gpu = {"count": _whole(count, f"{source}: {path}.resources.limits.{name}")} | (
            {} if name == DEFAULT_GPU_RESOURCE else {"resourceName": name}
        )
    for name in sorted({*limits, *requests}):
        _one(resources, name, requests.get(name), limits.get(name))
        if name != "cpu" and name not in limits:
            text = f"not given: the request, {requests[name]}, is the limit too"
            notes.assumed(source, f"{path}.resources.limits.{name}", text)
    _memory(resources, memory_flag, (source, path), notes)
    return resources


def _whole(count: Any, where: str) -> int:
    if not str(count).isdecimal():
        raise ValueError(f"{where}: {count!r} is not a number of GPUs: write a whole one, such as 1")
    return int(count)


def _one(resources: Resources, name: str, request: Any, limit: Any) -> None:
    """Our requests are limits too, but for cpu; a difference goes into the template."""
    if name == "cpu":
        resources.requests["cpu"] = limit if request is None else request
        if limit is not None:
            resources.template.setdefault("limits", {})["cpu"] = limit
        return
    resources.requests[name] = request if limit is None else limit
    if request is not None and limit is not None and str(request) != str(limit):
        resources.template.setdefault("requests", {})[name] = request


def _memory(resources: Resources, flag: str, where: tuple[str, str], notes: Notes) -> None:
    source, path = where
    memory = resources.requests.get("memory")
    if memory is None and flag:
        resources.requests["memory"] = flag
        notes.assumed(source, f"{path}.resources.limits.memory", f"not given: {flag}, as --memory-limit says")
    elif memory is None:
        notes.assumed(
            source,
            f"{path}.resources.limits.memory",
            "not given: the pod has no limit, and Dask is told none",
        )
    elif flag and flag != str(memory):
        notes.lost(source, f"{path}.args", f"--memory-limit {flag}: Dask is told the pod's memory, {memory}")


@dataclass
class Section:
    """One pod as it was read. `shared`: what our spec says once for all, where all pods agree."""

    image: str
    fields: Json
    shared: Json
    template: Json
    launch: launch.Launch
    resources: Resources


def read_section(part: Json, source: str, path: str, notes: Notes, *, scheduler: bool) -> Section:
    """The section of `part`, which is `{spec: PodSpec, metadata: ...}`.

    Raises:
        ValueError: it has no container or no image, or its number of GPUs is none.
    """
    pod = dict(part.get("spec") or {})
    for key in part:
        if key not in _PARTS:
            notes.lost(source, f"{path}.{key}", "there is no such field")
    containers = list(pod.pop("containers", None) or [])
    if not containers or not containers[0].get("image"):
        raise ValueError(f"{source}: {path}.spec.containers: a container with an image is required")
    main = dict(containers[0])
    where = f"{path}.spec.containers[0]"
    started = _launch(main, source, where, notes)
    expected = ("scheduler",) if scheduler else ("worker", "cuda")
    if started.kind and started.kind not in expected:
        notes.lost(source, f"{where}.args", f"starts a Dask {started.kind}, where a {expected[0]} is expected")
    resources = read_resources(main, started.memory, source, where, notes)
    if scheduler and resources.gpu is not None:
        # The stock client asks for one with every GPU worker: it has one setting for both.
        notes.lost(source, f"{where}.resources.limits", _NO_GPU)
        resources.gpu = None
    fields: Json = {"resources": resources.requests}  # also none: as written, it asks for nothing
    if env := _env(main.pop("env", None) or [], source, where, notes):
        fields["env"] = env
    fields["extraArgs"] = started.extra
    shared: Json = {"imagePullPolicy": main.pop("imagePullPolicy", None)}
    shared["imagePullSecrets"] = pod.pop("imagePullSecrets", None)
    template = _template(
        pod, main, containers[1:], resources, source=source, path=path, notes=notes, scheduler=scheduler
    )
    template["metadata"] = template_metadata(part.get("metadata") or {})
    return Section(containers[0]["image"], fields, shared, template, started, resources)


def _launch(main: Json, source: str, where: str, notes: Notes) -> launch.Launch:
    """How `main`, a stock container, starts Dask; what our arguments cannot say of that stays in it.

    A command that is none of Dask's is started as it is. One that starts Dask's, such as `conda run -n mine`, starts
    ours, but where it stands in `args`: there the image's entrypoint comes before it, which only the image knows.
    """
    command, args = list(main.pop("command", None) or []), list(main.pop("args", None) or [])
    before = launch.words_before([*command, *args])
    if before is None and (command or args):
        main |= {"args": args} | ({"command": command} if command else {})
        words = " ".join(map(str, [*command, *args]))[:_QUOTED]
        notes.assumed(source, f"{where}.args", f"{words!r} is no Dask command that is known: it is started as it is")
        return launch.Launch()
    if command and before:
        main["command"], command, args = [*command, *args][:before], [], [*command, *args][before:]
    return launch.read([*command, *args], (source, f"{where}.args"), notes)


def template_metadata(metadata: Json) -> Json:
    """The labels and annotations that pods get; those that an operator or kubectl sets are left out."""
    labels = _without(metadata.get("labels") or {}, _OWN_LABELS)
    annotations = _without(metadata.get("annotations") or {}, _FOREIGN_ANNOTATIONS)
    return {key: value for key, value in (("labels", labels), ("annotations", annotations)) if value}


def preload_env(started: launch.Launch) -> list[Json]:
    """`--preload` as Dask's configuration: the operator keeps the flag for itself."""
    names = {"PRELOAD": started.preload, "PRELOAD_ARGV": started.preload_argv}
    return [{"name": f"DASK_DISTRIBUTED__WORKER__{key}", "value": json.dumps(v)} for key, v in names.items() if v]


def _env(given: list[Json], source: str, where: str, notes: Notes) -> list[Json]:
    kept: dict[str, Json] = {}
    for item in given:
        if item["name"].startswith("GPUDASK_"):
            notes.lost(source, f"{where}.env[{item['name']}]", "names that start with GPUDASK_ belong to the operator")
            continue
        if "value" in item and not isinstance(item["value"], str):
            notes.assumed(source, f"{where}.env[{item['name']}]", "a number or boolean: written as a string")
            item = {**item, "value": json.dumps(item["value"])}  # noqa: PLW2901 - the same variable, corrected
        kept[item["name"]] = item
    return list(kept.values())


def _template(
    pod: Json,
    main: Json,
    sidecars: Iterable[Json],
    resources: Resources,
    *,
    source: str,
    path: str,
    notes: Notes,
    scheduler: bool,
) -> Json:
    """The template: what has no field of its own, the rest of the pod and of its containers."""
    for key in ("name", "image", "resources"):
        main.pop(key, None)
    if scheduler:
        _scheduler_parts(main, source, f"{path}.spec.containers[0]", notes)
    if resources.template:
        main["resources"] = resources.template
    others = []
    for sidecar in sidecars:
        if sidecar.get("name") == MAIN:
            notes.assumed(source, f"{path}.spec.containers[{MAIN}]", "a sidecar of that name is called dask-sidecar")
        others.append({**sidecar, "name": "dask-sidecar"} if sidecar.get("name") == MAIN else sidecar)
    if pod.pop("restartPolicy", "Always") != "Always":
        notes.lost(source, f"{path}.spec.restartPolicy", "Always here: a worker that lost its scheduler comes back")
    if resources.gpu is not None:
        # As it was: the extended resource alone picks the nodes, and whatever labels the pod asks for.
        resources.gpu["nodeSelector"] = pod.pop("nodeSelector", None) or {}
    if as_it_was(pod, main):
        notes.hint(source, f"{path}.spec.securityContext", "root stays allowed; remove runAsNonRoot: false if no need")
    containers = [{"name": MAIN, **main}] if main else []
    spec = {**pod, **({"containers": [*containers, *others]} if containers or others else {})}
    return {"spec": spec}


def as_it_was(pod: Json, main: Json) -> bool:
    """Set in `pod`, the rest of a stock pod, what our defaults would change; whether root stays allowed by it.

    `main`: its main container.
    """
    if pod.get("serviceAccountName") or pod.get("serviceAccount"):
        pod.setdefault("automountServiceAccountToken", True)
    security = {**(pod.get("securityContext") or {}), **(main.get("securityContext") or {})}
    if "runAsNonRoot" in security or security.get("runAsUser"):
        return False
    pod["securityContext"] = {**(pod.get("securityContext") or {}), "runAsNonRoot": False}
    return True


def _scheduler_parts(main: Json, source: str, where: str, notes: Notes) -> None:
    """Ports and probes that the operator gives the scheduler itself."""
    ports = [port for port in main.pop("ports", None) or [] if port.get("containerPort") not in _SCHEDULER_PORTS]
    if ports:
        main["ports"] = ports
    if main.pop("readinessProbe", None) is not None:
        notes.hint(source, f"{where}.readinessProbe", "the operator sets its own, on /health")
    if main.pop("livenessProbe", None) is not None:
        notes.hint(source, f"{where}.livenessProbe", "left out: a scheduler that reads a large graph is busy, not dead")


def _without(items: dict[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {key: value for key, value in items.items() if not key.startswith(prefixes)}


def pool_name(group: str) -> str:
    """The name of the pool of a worker group: `high-mem-workers` is `highmemworkers`."""
    plain = re.sub(r"[^a-z0-9]", "", group.lower())
    name = (plain if plain[:1].isalpha() else f"p{plain}")[:POOL_LENGTH]
    return "schedulers" if name == "scheduler" else name


def pool_fields(
    name: str, part: Json, section: Section, *, source: str, path: str, notes: Notes, limits: Limits | None = None
) -> Json:
    """The fields that are a pool's own, from a group's `part` and what was read of its pod.

    `limits`: between which it follows demand, whatever size it has; None: it has its size.
    """
    from gpudask.api.pool import MAX_REPLICAS  # noqa: PLC0415 - the models take long to load

    replicas = part.get("replicas")
    if isinstance(replicas, int) and replicas > MAX_REPLICAS:
        notes.lost(source, f"{path}.replicas", f"{replicas}: a pool has {MAX_REPLICAS} pods at most")
        replicas = MAX_REPLICAS
    pool: Json = {"name": name}
    if limits is None:
        pool["replicas"] = 1 if replicas is None else replicas
    else:
        pool["autoscale"] = {"min": limits.least, "max": limits.most}
        if replicas is not None:
            notes.hint(source, f"{path}.replicas", f"{replicas}: left out, it follows demand: {limits} pods")
    if section.resources.gpu is not None:
        pool["gpu"] = section.resources.gpu | ({} if section.launch.kind == "cuda" else {"launcher": "dask"})
        if not section.launch.offers:
            pool |= _accepts(limits, source, notes)
    elif section.launch.kind == "cuda":
        field = f"{path}.spec.containers[0].resources.limits"
        notes.lost(source, field, "`dask cuda worker` without a GPU's limit: write gpu: {count: 1} into the pool")
    for key in ("nthreads", "offers"):
        if value := getattr(section.launch, key):
            pool[key] = value
    if section.launch.nthreads is None and section.launch.kind == "worker":
        set_threads(pool, section.resources, (source, f"{path}.spec.containers[0].args"), notes)
    return pool


def _accepts(limits: Limits | None, source: str, notes: Notes) -> Json:
    """Whether plain tasks run on GPU workers that offer nothing: as before, but where these follow demand, of GPUs."""
    if limits is None:
        return {"accepts": "any"}
    text = (
        f'{limits}: it follows GPU demand, of tasks that ask for it (resources={{"GPU": 1}}); plain tasks run here only'
        " where no other group takes them"
    )
    notes.assumed(source, autoscale.PATH, text)
    return {}


def set_threads(pool: Json, resources: Resources, where: tuple[str, str], notes: Notes) -> None:
    """Without --nthreads Dask takes the cores that it may use: the container's limit, or else the node's."""
    from gpudask.api.base import number  # noqa: PLC0415 - the models take long to load

    limit = resources.template.get("limits", {}).get("cpu")
    ours = 1 if resources.gpu is not None else math.ceil(number(resources.requests.get("cpu", 1)))
    if limit is None:
        threads = f"{ours} thread{'' if ours == 1 else 's'}"
        notes.assumed(*where, f"neither --nthreads nor a cpu limit: {threads}, not as many as the node has cores")
    elif math.ceil(number(limit)) != ours:
        pool["nthreads"] = math.ceil(number(limit))
