"""An API server from a bundle alone: nothing of the machine's cache, and every way out closed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from local.bundle.packing.pack import gather, write_start
from local.bundle.packing.writing import write_bundle
from local.host.lock import exclusive
from local.host.progress import Steps
from local.layout import cache_dir
from local.programs.binaries import KUBERNETES

pytestmark = pytest.mark.api

_CLOSED = {"https_proxy": "http://127.0.0.1:9", "GOPROXY": "off", "PIP_NO_INDEX": "1"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an API server needs, out of all that a bundle has."""
    directory = tmp_path_factory.mktemp("bundle")
    wanted = (KUBERNETES.module, "etcd", "host", "wheels-tools", "sources")
    items = [item for item in gather(Steps()) if item.archive in wanted]
    cache = cache_dir() / "bundles" / "fast-archives"  # what was compressed for an earlier run
    with exclusive(cache):  # another run of the tests would write the same files
        write_bundle(items, directory, part_bytes=16 << 20, preset=0, cache=cache)
    write_start(directory / "start.pyz")
    return directory


def test_an_api_server_starts_from_a_bundle(bundle: Path, tmp_path: Path):
    cache = tmp_path / "cache"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "GPUDASK_CACHE_DIR": str(cache), **_CLOSED}
    python = getattr(sys, "_base_executable", sys.executable)

    def local(*arguments: str) -> str:
        command = [python, str(bundle / "start.pyz"), *arguments, "--name", "packed"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    kubeconfig = local("up", "--api-only").split("KUBECONFIG=")[1].strip()
    try:
        root = cache / "local" / "packed"
        records = {path.stem: json.loads(path.read_text()) for path in (root / "processes").glob("*.json")}
        programs = [Path(f"/proc/{record['pid']}/exe").readlink() for record in records.values()]
        assert sorted(records) == ["etcd", "kube-apiserver"]
        assert all(program.is_relative_to(cache / "bundles") for program in programs)
        kubectl = [str(root / "bin" / "kubectl"), "--kubeconfig", kubeconfig]
        assert "default" in subprocess.check_output([*kubectl, "get", "namespaces", "--output=name"], text=True)
    finally:
        local("down")
    assert not root.exists()
