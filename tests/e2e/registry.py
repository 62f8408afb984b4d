"""An image registry on this machine's loopback, as Debian has it: pushed to over HTTP, pulled from by the nodes."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.host.ports import free_ports
from local.host.progress import QUIET
from local.programs.requirements import Program, Requirements, ensure_requirements
from tests.eventually import eventually

_REQUIREMENTS = Requirements((Program("docker-registry", "docker-registry"),))


def ensure_registry() -> None:
    """Install it where it is missing; to be called where there is a way to Debian's packages."""
    ensure_requirements(_REQUIREMENTS, QUIET)


@contextmanager
def image_registry(directory: Path) -> Iterator[str]:
    """Its address while the context is open; containerd and docker take one on 127.0.0.1 to speak plain HTTP."""
    ensure_registry()
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    config = directory / "registry.json"  # YAML, of which JSON is a part
    storage = {
        "filesystem": {"rootdirectory": str(directory / "images")},
        "maintenance": {"uploadpurging": {"enabled": False}},
    }
    config.write_text(json.dumps({"version": "0.1", "storage": storage, "http": {"addr": address}}))
    with (directory / "registry.log").open("w") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=subprocess.STDOUT)
        try:
            eventually(lambda: _answers(address), "the registry answers", show=(directory / "registry.log").read_text)
            yield address
        finally:
            process.terminate()
            process.wait()


def tags(address: str, name: str) -> list[str]:
    """The tags that an image has there."""
    with urllib.request.urlopen(f"http://{address}/v2/{name}/tags/list", timeout=60) as answer:
        return list(json.load(answer)["tags"])


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/v2/", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
