"""The API server that a program means, as kubectl finds it: kubeconfig files merged, or the pod that it runs in.

A kubeconfig goes before the pod: a notebook in one Kubernetes may well work with another.

kr8s takes the current context of the first file only, and the namespace of the current context even where another
one was chosen. The rules: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from gpudask.api import Json
from gpudask.kubecluster.errors import KubeClusterError

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT = "~/.kube/config"
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
_OWN_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
_FILES = {
    "clusters": ("cluster", ("certificate-authority",)),
    "users": ("user", ("client-certificate", "client-key", "tokenFile")),
}


@dataclass(frozen=True)
class Choice:
    """The part of a kubeconfig that is in force: a context, its cluster and its user."""

    context: str
    namespace: str
    cluster: Json
    user: Json


@dataclass(frozen=True)
class Access:
    """The arguments by which a program chooses an API server.

    Attributes:
        kubeconfig: a path, or several with `:` between; without one KUBECONFIG's, then ~/.kube/config.
        context: a name in the kubeconfig; without one, the current.
    """

    kubeconfig: str | None = None
    context: str | None = None

    def choice(self) -> Choice | None:
        """The context in force, its files read now; None: the pod's own service account is.

        Raises:
            KubeClusterError: a file is missing or is none, there is no such context, or there is nothing at all.
        """
        config = load(self.kubeconfig, os.environ)
        if config is not None:
            return choose(config, self.context)
        if self.context:
            raise KubeClusterError(
                f"there is no kubeconfig, so there is no context {self.context!r}",
                reason="KUBECONFIG is not set, and there is no ~/.kube/config",
                next_step="Name the file: KUBECONFIG, --kubeconfig or kubeconfig=",
            )
        if _HOST not in os.environ:
            raise KubeClusterError(
                "there is no Kubernetes to connect to",
                reason="KUBECONFIG is not set, there is no ~/.kube/config, and this is no pod",
                next_step="Ask for a kubeconfig, or have your cloud's tool write it (such as `aws eks"
                " update-kubeconfig`), and name it: KUBECONFIG, --kubeconfig or kubeconfig=",
            )
        return None

    def is_inside(self) -> bool:
        """True if this program is a pod of that very Kubernetes: then Services' names lead to their pods.

        Raises:
            KubeClusterError: as `choice`.
        """
        if _HOST not in os.environ:
            return False
        choice = self.choice()
        return choice is None or _is_own(str(choice.cluster.get("server", "")))


def pod_namespace() -> str:
    """The namespace of the pod that this runs in, empty where nothing says it."""
    # kr8s means to read it, but its fallback "default" comes first.
    return NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.exists() else ""


def _is_own(server: str) -> bool:
    url = urlsplit(server)
    port = str(url.port or (80 if url.scheme == "http" else 443))
    return url.hostname in _OWN_NAMES or (url.hostname, port) == (os.environ[_HOST], os.environ.get(_PORT, "443"))


def load(given: str | None, environment: Mapping[str, str]) -> Json | None:
    """The kubeconfig in force; None where there is no file, as inside a pod.

    Args:
        given: one file, or several with `:` between, each of which must be there.
        environment: KUBECONFIG is read from it: files with `:` between, those that are missing are skipped.

    Raises:
        KubeClusterError: a file cannot be read, or is none.
    """
    if given:
        whole = [given] if Path(given).expanduser().exists() else given.split(os.pathsep)
        return merge([read(Path(part).expanduser()) for part in whole])
    listed = [Path(part).expanduser() for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    paths = [path for path in listed or [Path(_DEFAULT).expanduser()] if path.exists()]
    if listed and not paths:
        raise KubeClusterError(
            f"KUBECONFIG={environment['KUBECONFIG']}", reason="no such file", next_step="Correct it, or unset it"
        )
    merged = merge([read(path) for path in paths])
    return merged if merged["contexts"] or listed else None


def read(path: Path) -> Json:
    """One file, its relative paths made absolute.

    Raises:
        KubeClusterError: it cannot be read, or holds no kubeconfig.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        step = "Name a kubeconfig file: KUBECONFIG, --kubeconfig or kubeconfig="
        raise KubeClusterError(f"cannot read kubeconfig {path}", reason=str(error), next_step=step) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        step = "Name a file that `kubectl config view` can read"
        raise KubeClusterError(f"{path} is no kubeconfig", reason="it holds no mapping", next_step=step)
    for section, (key, fields) in _FILES.items():
        for item in content.get(section) or []:
            _absolute(item.get(key) or {}, fields, path.parent)
            _absolute_command((item.get(key) or {}).get("exec"), path.parent)
    # YAML knows times, such as when a token ends; kr8s wants what JSON knows.
    plain: Json = json.loads(json.dumps(content, default=str))
    return plain


def merge(files: list[Json]) -> Json:
    """Several files as one: of what has the same name, and of the current context, the first one holds."""
    merged: Json = {"apiVersion": "v1", "kind": "Config"}
    for section in ("clusters", "users", "contexts"):
        named: Json = {}
        for content in files:
            for item in content.get(section) or []:
                named.setdefault(item["name"], item)
        merged[section] = list(named.values())
    current = (content.get("current-context") for content in files)
    return merged | {"current-context": next((name for name in current if name), "")}


def choose(config: Json, context: str | None) -> Choice:
    """The context in force, with its own namespace.

    Raises:
        KubeClusterError: no such context, or none is current and none was named; or it names no cluster or user
            that there is.
    """
    contexts = {item["name"]: item.get("context") or {} for item in config["contexts"]}
    name = context or config["current-context"]
    if name not in contexts:
        listed = ", ".join(sorted(contexts)) or "none"
        what = f"no context {name!r} in the kubeconfig" if name else "no current context in the kubeconfig"
        raise KubeClusterError(what, reason=f"it has: {listed}", next_step="Name one: --context or context=")
    chosen = contexts[name]
    return Choice(
        context=name,
        namespace=chosen.get("namespace") or "default",
        cluster=_named(config, "clusters", chosen, name),
        user=_named(config, "users", chosen, name),
    )


def _named(config: Json, section: str, context: Json, name: str) -> Json:
    key = _FILES[section][0]
    wanted = context.get(key)
    found = [item.get(key) or {} for item in config[section] if item["name"] == wanted]
    if not found:
        listed = ", ".join(sorted(item["name"] for item in config[section])) or "none"
        raise KubeClusterError(
            f"context {name!r} names the {key} {wanted!r}, which the kubeconfig does not have",
            reason=f"its {section} are: {listed}",
            next_step=f"Correct the context: kubectl config set-context {name} --{key}=...",
        )
    return dict(found[0])


def _absolute(item: Json, fields: tuple[str, ...], folder: Path) -> None:
    for field in fields:
        if item.get(field):
            item[field] = str(folder.resolve() / item[field])


def _absolute_command(plugin: Json | None, folder: Path) -> None:
    # As kubectl: a bare name is found on PATH, anything with a slash is a file beside the kubeconfig.
    command = (plugin or {}).get("command", "")
    if plugin and "/" in command:
        plugin["command"] = str(folder.resolve() / command)
