"""Kubeconfigs for the real cluster whose namespace is a test's own."""

from __future__ import annotations

from gpudask.api import Json

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from tests.e2e.space import Space
from tests.e2e.tcp_proxy import Proxy, proxy


def write_kubeconfig(space: Space, path: Path, *, token: str = "") -> None:
    """An administrator's, in this namespace; or somebody's with a token."""
    config = _administrators(space)
    if token:
        config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path.write_text(yaml.safe_dump(config))


@contextmanager
def breakable_network(space: Space, path: Path) -> Iterator[Proxy]:
    """An administrator's, in this namespace, through a network that can be cut."""
    config = _administrators(space)
    (entry,) = config["clusters"]
    server = urlsplit(entry["cluster"]["server"])
    assert server.hostname
    assert server.port
    with proxy((server.hostname, server.port)) as network:
        entry["cluster"]["server"] = f"https://127.0.0.1:{network.port}"
        path.write_text(yaml.safe_dump(config))
        yield network


def _administrators(space: Space) -> Json:
    assert space.kubectl.kubeconfig is not None
    config: Json = yaml.safe_load(space.kubectl.kubeconfig.read_text())
    for item in config["contexts"]:
        item["context"]["namespace"] = space.kubectl.namespace
    return config
