"""Manifests as commands read them: YAML documents from a file or standard input, checked by the models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from gpudask.api import Json
from gpudask.api.resource import API_VERSION, KIND, Cluster, InvalidSpecError, parse
from gpudask.cli.options import check_namespace
from gpudask.cli.output import CliError, Exit

_SHAPES: dict[type, str] = {list: "list", str: "plain text"}


def read_documents(file: str) -> list[Any]:
    """The YAML documents of `file`, `-` for standard input; empty ones are left out.

    Raises:
        CliError: it cannot be read.
    """
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except FileNotFoundError as error:
        raise CliError(f"no such file: {file}", Exit.USAGE) from error
    except OSError as error:
        raise CliError(f"cannot read {file}: {error.strerror}", Exit.USAGE) from error
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise CliError(f"cannot read {file}: {where}{error.problem}. Write YAML") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise CliError(f"cannot read {file}: {error}. Write YAML, in UTF-8") from error


def read_clusters(file: str) -> list[Json]:
    """The GpuDaskClusters of `file`.

    Raises:
        CliError: something else is in it, or nothing.
    """
    bodies = read_documents(file)
    for body in bodies:
        kind = body.get("kind") if isinstance(body, dict) else _SHAPES.get(type(body), "value")
        if kind == "DaskCluster":
            raise CliError(f"{file} holds a DaskCluster of the stock operator: gpudask convert {file} makes it ours")
        if kind != KIND or body.get("apiVersion") != API_VERSION:
            raise CliError(f"{file} holds {_article(kind)}: write apiVersion: {API_VERSION}, kind: {KIND}")
        metadata = body.get("metadata")
        if not (isinstance(metadata, dict) and isinstance(metadata.get("name"), str)):
            raise CliError(f"{file}: metadata.name: required, a text: write metadata: {{name: demo}}")
    if not bodies:
        raise CliError(f"{file} holds no manifest: write one of kind {KIND}")
    return bodies


def _article(kind: Any) -> str:
    return "a document without kind" if kind is None else str(kind) if kind == "plain text" else f"a {kind}"


def checked(body: Json, namespace: str = "default", uid: str = "unknown") -> Cluster:
    """The cluster that the operator would make of a manifest.

    Raises:
        CliError: it breaks a rule; the message names the field and says what to write.
    """
    metadata = {"namespace": namespace, "uid": uid} | body["metadata"]
    try:
        return parse({**body, "metadata": metadata})
    except InvalidSpecError as error:
        raise CliError(f"{body['metadata']['name']}: {error}") from error


def namespace_of(bodies: list[Json], asked: str | None) -> str | None:
    """The namespace of manifests: the one that was asked for, or the one that all of them name.

    Raises:
        CliError: they differ, which kubectl refuses as well; or what is named can be none.
    """
    named = {body["metadata"]["namespace"] for body in bodies if body["metadata"].get("namespace")}
    if asked is not None and named - {asked}:
        raise CliError(f"the manifest says namespace {min(named - {asked})!r}, -n says {asked!r}: make them agree")
    if len(named) > 1:
        raise CliError(f"the manifests name several namespaces, {', '.join(sorted(named))}: create them one by one")
    for name in named:
        check_namespace(name)
    return asked or next(iter(named), None)
