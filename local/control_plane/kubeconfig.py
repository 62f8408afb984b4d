"""Kubeconfig files: one server, one user, everything inside, so that a file can be copied anywhere."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from local.control_plane.pki import Pki


def write_kubeconfig(path: Path, *, server: str, pki: Pki, identity: str) -> None:
    """Write what the party `identity` needs to speak to `server`; rewrite it only where it differs."""
    name = "gpudask-local"
    content = yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": name, "cluster": {"server": server, "certificate-authority-data": _data(pki.authority)}}
            ],
            "users": [
                {
                    "name": identity,
                    "user": {
                        "client-certificate-data": _data(pki.certificate(identity)),
                        "client-key-data": _data(pki.key(identity)),
                    },
                }
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": identity}}],
            "current-context": name,
        },
        sort_keys=False,
    )
    if not path.exists() or path.read_text() != content:
        path.touch(mode=0o600)
        path.write_text(content)


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
