"""Kubeconfigs for the real cluster whose namespace is a test's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.e2e.space import Space


def write_kubeconfig(space: Space, path: Path, *, token: str = "") -> None:
    """An administrator's, in this namespace; or somebody's with a token."""
    assert space.kubectl.kubeconfig is not None
    config: dict[str, Any] = yaml.safe_load(space.kubectl.kubeconfig.read_text())
    for item in config["contexts"]:
        item["context"]["namespace"] = space.kubectl.namespace
    if token:
        config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path.write_text(yaml.safe_dump(config))
