"""kubeconfig files put together as kubectl does it. Pure but for reading the files.

kr8s takes the current context of the first file only, and the namespace of the current context even where another
one was chosen. The rules: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

from gpudask.cli.exits import CliError

Json = dict[str, Any]
_FILES = {
    "clusters": ("cluster", ("certificate-authority",)),
    "users": ("user", ("client-certificate", "client-key", "tokenFile")),
}


def load(given: str | None, environment: dict[str, str]) -> Json | None:
    """The kubeconfig in force; None where there is no file, as inside a pod.

    Args:
        given: `--kubeconfig`: one file, which must be there.
        environment: KUBECONFIG is read from it: files with `:` between, those that are missing are skipped.

    Raises:
        CliError: a file cannot be read, or is none.
    """
    if given:
        return merge([read(Path(given).expanduser())])
    listed = [Path(part).expanduser() for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    paths = [path for path in listed or [Path("~/.kube/config").expanduser()] if path.exists()]
    if listed and not paths:
        raise CliError(f"KUBECONFIG={environment['KUBECONFIG']}: no such file. Correct it, or unset it")
    return merge([read(path) for path in paths]) if paths else None


def read(path: Path) -> Json:
    """One file, its relative paths made absolute.

    Raises:
        CliError: it cannot be read, or holds no kubeconfig.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise CliError(f"cannot read kubeconfig {path}: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise CliError(f"{path} is no kubeconfig: it holds no mapping")
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


def choose(config: Json, context: str | None) -> tuple[str, str]:
    """The context in force and its namespace.

    Raises:
        CliError: no such context, or none is current and none was named.
    """
    contexts = {item["name"]: item.get("context") or {} for item in config["contexts"]}
    name = context or config["current-context"]
    if name not in contexts:
        listed = ", ".join(sorted(contexts)) or "none"
        what = f"no context {name!r} in the kubeconfig" if name else "no current context in the kubeconfig"
        raise CliError(f"{what}. It has: {listed}. Name one: --context")
    return name, contexts[name].get("namespace") or "default"


def _absolute(item: Json, fields: tuple[str, ...], folder: Path) -> None:
    for field in fields:
        if item.get(field):
            item[field] = str(folder.resolve() / item[field])


def _absolute_command(plugin: Json | None, folder: Path) -> None:
    # As kubectl: a bare name is found on PATH, anything with a slash is a file beside the kubeconfig.
    command = (plugin or {}).get("command", "")
    if plugin and "/" in command:
        plugin["command"] = str(folder.resolve() / command)
