"""The API server that a program means, as kubectl finds it: kubeconfig files merged, or the pod that it runs in.

A kubeconfig goes before the pod: a notebook in one Kubernetes may well work with another.

What was read once is kept for as long as a program runs: the files, the context, the server. Somebody who switches the
current context in another terminal means his next command. What is read again is how the same user logs in.

The rules of merging: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
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
# The fields of a user that a login writes anew; what else is there says as whom it acts.
_LOGIN = (
    "token", "tokenFile", "exec", "auth-provider", "username", "password",
    "client-certificate", "client-certificate-data", "client-key", "client-key-data",
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """The part of a kubeconfig that is in force: a context, its cluster and its user.

    It is plain JSON, so that another process may be given it: `dataclasses.asdict`, and `Choice(**...)`.

    Attributes:
        context: its name.
        namespace: the context's own.
        cluster: its section of the kubeconfig, paths absolute.
        user: its section, paths absolute.
        user_name: by which the context names it.
        files: the kubeconfig's files, absolute, the first one wins.
    """

    context: str
    namespace: str
    cluster: Json
    user: Json
    user_name: str = ""
    files: tuple[str, ...] = ()

    def renewed(self) -> Choice:
        """The same user of the same server, with the login that the files have now.

        As it was, where they cannot be read just now, or the context has come to lead elsewhere: the credentials of
        one server are nothing that another should see.
        """
        try:
            now = choose(merge([read(Path(file)) for file in self.files if Path(file).exists()]), self.context)
        except KubeClusterError:
            return self
        if (now.user_name, now.cluster.get("server")) != (self.user_name, self.cluster.get("server")):
            return self
        kept = {field: value for field, value in self.user.items() if field not in _LOGIN}
        return replace(self, user=kept | {field: now.user[field] for field in _LOGIN if field in now.user})


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
        files = find_files(self.kubeconfig, os.environ)
        config = _merged(files)
        if config is not None:
            return replace(choose(config, self.context), files=tuple(map(str, files)))
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
    return NAMESPACE_FILE.read_text("utf-8").strip() if NAMESPACE_FILE.exists() else ""


def _is_own(server: str) -> bool:
    try:
        url = urlsplit(server)
        port = str(url.port or (80 if url.scheme == "http" else 443))
    except ValueError:  # connecting will say so
        return False
    return url.hostname in _OWN_NAMES or (url.hostname, port) == (os.environ[_HOST], os.environ.get(_PORT, "443"))


def load(given: str | None, environment: Mapping[str, str]) -> Json | None:
    """The kubeconfig in force; None where there is no file, as inside a pod.

    Args:
        given: one file, or several with `:` between, each of which must be there.
        environment: KUBECONFIG is read from it: files with `:` between, those that are missing are skipped.

    Raises:
        KubeClusterError: a file cannot be read, or is none.
    """
    return _merged(find_files(given, environment))


def find_files(given: str | None, environment: Mapping[str, str]) -> list[Path]:
    """The kubeconfig's files, absolute: the program may go to another folder later. None where there is none.

    Raises:
        KubeClusterError: what KUBECONFIG names is not there.
    """
    if given:
        whole = [given] if Path(given).expanduser().exists() else given.split(os.pathsep)
        return [Path(part).expanduser().absolute() for part in whole if part]
    listed = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    paths = [Path(part).expanduser().absolute() for part in listed or [_DEFAULT]]
    found = [path for path in paths if path.exists()]
    if listed and not found:
        raise KubeClusterError(
            f"KUBECONFIG={environment['KUBECONFIG']}", reason="no such file", next_step="Correct it, or unset it"
        )
    default = not listed and found
    return [] if default and not read(found[0]).get("contexts") else found


def _merged(files: list[Path]) -> Json | None:
    return merge([read(path) for path in files]) if files else None


def read(path: Path) -> Json:
    """One file, its relative paths made absolute.

    Raises:
        KubeClusterError: it cannot be read, or holds no kubeconfig.
    """
    try:
        content = yaml.safe_load(path.read_text("utf-8-sig"))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        step = "Name a kubeconfig file: KUBECONFIG, --kubeconfig or kubeconfig="
        raise KubeClusterError(f"cannot read kubeconfig {path}", reason=str(error), next_step=step) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        step = "Name a file that `kubectl config view` can read"
        raise KubeClusterError(f"{path} is no kubeconfig", reason="it holds no mapping", next_step=step)
    if wrong := _wrong_part(content):
        step = f"Correct it: `kubectl --kubeconfig {path} config view` should show it"
        raise KubeClusterError(f"{path} is no kubeconfig", reason=wrong, next_step=step)
    for section, (key, fields) in _FILES.items():
        for item in content.get(section) or []:
            _absolute(item.get(key) or {}, fields, path.parent)
            _absolute_command((item.get(key) or {}).get("exec"), path.parent)
    # YAML knows times, such as when a token ends; all else here is what JSON knows.
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
        user_name=str(chosen.get("user", "")),
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


def _wrong_part(content: Json) -> str:
    """The part that has another shape than a kubeconfig's; empty where all have theirs."""
    for section, key in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
        items = content.get(section) or []
        if not isinstance(items, list):
            return f"{section} is no list"
        for number, item in enumerate(items):
            if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                return f"{section}[{number}] has no name"
            if not isinstance(item.get(key) or {}, dict):
                return f"{key} of {section}[{number}] is no mapping"
    return ""


def _absolute(item: Json, fields: tuple[str, ...], folder: Path) -> None:
    for field in fields:
        if item.get(field):
            item[field] = str(folder.resolve() / str(item[field]))


def _absolute_command(plugin: Any, folder: Path) -> None:
    # As kubectl: a bare name is found on PATH, anything with a slash is a file beside the kubeconfig.
    command = plugin.get("command") if isinstance(plugin, dict) else None
    if isinstance(command, str) and any(separator in command for separator in ("/", os.sep)):
        plugin["command"] = str(folder.resolve() / command)
