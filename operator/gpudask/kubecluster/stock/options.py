"""The options of `KubeCluster(...)`: what the program passes, else what Dask's configuration says. Pure.

Of the configuration, `gpudask.*` is ours, and `kubernetes.*` is what dask-kubernetes reads. Its own defaults are in
the configuration as soon as it is imported: what is equal to one was said by nobody.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dask.typing import no_default

from gpudask.kubecluster.errors import KubeClusterValueError
from gpudask.kubecluster.manifest import DEFAULT_SHUTDOWN, Arguments, Shutdown, name_of, read_manifest
from gpudask.kubecluster.resource import CreateMode
from gpudask.kubecluster.stock.cuda import read_cuda

# kubernetes.* -> our argument, and dask-kubernetes' default; a test holds them to its own file.
CONFIGURATION: dict[str, tuple[str, Any]] = {
    "name": ("name", "dask-{user}-{uuid}"),
    "namespace": ("namespace", None),
    "image": ("image", "ghcr.io/dask/dask:latest"),
    "count.start": ("n_workers", 0),
    "resources": ("resources", {}),
    "env": ("env", {}),
    "worker-command": ("worker_command", "dask-worker"),
    "port-forward-cluster-ip": ("port_forward_cluster_ip", None),
    "create-mode": ("create_mode", "CREATE_OR_CONNECT"),
    "shutdown-on-close": ("shutdown_on_close", True),
    "resource-timeout": ("resource_timeout", 60),
    "custom-cluster-spec": ("custom_cluster_spec", None),
    "scheduler-service-type": ("scheduler_service_type", "ClusterIP"),
    "scheduler-forward-port": ("scheduler_forward_port", None),
    "scheduler-jupyter": ("jupyter", False),
    "idle-timeout": ("idle_timeout", None),
}
_NO_LONGER = "count.max"
_OF_POOLS = ("n_workers", "gpus", "resources", "worker_command")
_OF_THE_CALL = {"self", "others", "__class__"}  # what `locals()` has, too
_OF_A_CLUSTER = frozenset(each.name for each in fields(Arguments)) - {"cuda", "configured"}


@dataclass(frozen=True)
class Options:
    """The options, each from where it was said.

    Attributes:
        arguments: what the cluster to create is like.
        shutdown: its end without a program.
        dashboard_port: of this machine; 0: any.
    """

    arguments: Arguments
    name: str | None
    namespace: str | None
    create_mode: CreateMode
    shutdown_on_close: bool | None
    shutdown: Shutdown
    timeout: float | str | None
    resource_timeout: float | str | None
    dashboard_port: int
    always_forwards: bool
    kubeconfig: str | None
    context: str | None
    compares_versions: bool


def read_options(given: Mapping[str, Any], others: Mapping[str, Any], configuration: Mapping[str, Any]) -> Options:
    """The options of one `KubeCluster`.

    Args:
        given: its own parameters, by name; None: not given. More than these may be in it.
        others: what it was given beside them.
        configuration: Dask's.

    Raises:
        KubeClusterError: one cannot be used, alone or beside another; the message says what to write.
    """
    cuda = read_cuda(others, [name for name in given if name not in _OF_THE_CALL])
    configured = _read_configuration(configuration)
    spec = read_manifest(given.get("custom_cluster_spec"))
    said = {name for name in _OF_A_CLUSTER if given.get(name) is not None} | set(cuda.names)
    mode = CreateMode.of(given.get("create_mode") or configured.pop("create_mode", CreateMode.CREATE_OR_CONNECT))
    custom = configured.pop("custom_cluster_spec", None)
    if custom is not None and spec is None and mode is not CreateMode.CONNECT_ONLY:
        if said:
            raise KubeClusterValueError(
                f"{', '.join(sorted(said))} beside kubernetes.custom-cluster-spec of Dask's configuration",
                reason="the manifest says it all",
                next_step="Put them into the manifest, or leave that setting out",
            )
        spec = read_manifest(custom)
    if spec is not None:
        configured = {name: value for name, value in configured.items() if name not in _OF_A_CLUSTER}
        if name_of(spec):
            configured.pop("name", None)
    elif given.get("pools") is not None:
        configured = {name: value for name, value in configured.items() if name not in _OF_POOLS}
    values = {**configured, **{name: value for name, value in given.items() if value is not None}}
    values["custom_cluster_spec"] = spec
    if given.get("timeout") is not None and given.get("resource_timeout") is None:
        values.pop("resource_timeout", None)
    arguments = Arguments(
        **{name: values.get(name) for name in _OF_A_CLUSTER} | {"jupyter": values.get("jupyter") or None},
        cuda=cuda if cuda.names else None,
        configured=frozenset(configured) - frozenset(said),
    )
    return Options(
        arguments=arguments,
        name=values.get("name"),
        namespace=values.get("namespace"),
        create_mode=mode,
        shutdown_on_close=values.get("shutdown_on_close"),
        shutdown=Shutdown.of(
            given.get("shutdown_after_disconnect", no_default),
            _setting(configuration, "gpudask.shutdown-after-disconnect", DEFAULT_SHUTDOWN),
        ),
        timeout=values.get("timeout"),
        resource_timeout=values.get("resource_timeout"),
        dashboard_port=_port(values.get("scheduler_forward_port")),
        always_forwards=bool(values.get("port_forward_cluster_ip")),
        kubeconfig=values.get("kubeconfig"),
        context=values.get("context"),
        compares_versions=bool(values.get("compare_versions", True)),
    )


def _read_configuration(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """What somebody has said there, by our arguments' names."""
    if (most := _setting(configuration, f"kubernetes.{_NO_LONGER}")) is not None:
        warnings.warn(
            f"kubernetes.{_NO_LONGER}={most!r} of Dask's configuration is not used: write n_workers=(0, {most})",
            stacklevel=4,
        )
    found = {}
    for key, (argument, default) in CONFIGURATION.items():
        value = _setting(configuration, f"kubernetes.{key}")
        if value is not None and value != default:
            found[argument] = value
    if image := _setting(configuration, "gpudask.image"):
        found["image"] = str(image)
    return found


def _setting(configuration: Any, key: str, default: Any = None) -> Any:
    """A value of Dask's configuration, which may have `_` for `-`; `default`: there is none."""
    value = configuration
    for part in key.split("."):
        if not isinstance(value, Mapping):
            return default
        value = value[part] if part in value else value.get(part.replace("-", "_"), default)
    return value


def _port(given: Any) -> int:
    try:
        port = int(given or 0)
    except (TypeError, ValueError):
        port = -1
    if not 0 <= port < 2**16:
        raise KubeClusterValueError(
            f"scheduler_forward_port={given!r}",
            reason="it is a port of this machine",
            next_step="Write scheduler_forward_port=8787, or leave it out for any that is free",
        )
    return port
