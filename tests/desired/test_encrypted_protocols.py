"""tls and wss, as docs/reference.md offers them: the commands of the pods, run as processes."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed import Client
from distributed.security import Security

from gpudask.desired.pod import dask_environment
from gpudask.desired.scheduler import scheduler_pod
from gpudask.desired.workers import worker_pod
from local.host.ports import free_ports
from tests.builders import a_cluster, a_pool
from tests.eventually import eventually

pytestmark = pytest.mark.dask


def certificate(directory: Path) -> Path:
    """A key with a certificate of its own, in one file, which every party has and trusts."""
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dask")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + dt.timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    file = directory / "dask.pem"
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, *private)
    file.write_bytes(text + builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return file


@contextmanager
def process(arguments: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    """`dask ...` of a pod, as a process of this machine."""
    command = [sys.executable, "-m", "dask", *arguments[1:]]
    with log.open("w") as out:
        running = subprocess.Popen(command, env=os.environ | environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            running.terminate()
            running.wait()


@pytest.mark.parametrize("protocol", ["tls", "wss"])
def test_what_the_pods_run_speaks_it_from_end_to_end(protocol: str, tmp_path: Path):
    file = str(certificate(tmp_path))
    parties = {party: {"key": file, "cert": file} for party in ("scheduler", "worker", "client")}
    config = {"distributed": {"comm": {"tls": {"ca-file": file, **parties}, "require-encryption": True}}}
    cluster = a_cluster(a_pool(), protocol=protocol, config=config)
    pods = [scheduler_pod(cluster, "s", "preload"), worker_pod(cluster, cluster.spec.pools[0], 0, "abcde")]
    scheduler, worker = (pod["spec"]["containers"][0]["args"] for pod in pods)
    env = {item["name"]: item["value"] for item in dask_environment(config)}

    (port,) = free_ports(1)
    address = f"{protocol}://127.0.0.1:{port}"
    scheduler[scheduler.index("--port") + 1] = str(port)
    scheduler[scheduler.index("--dashboard-address") + 1] = ":0"
    del scheduler[scheduler.index("--preload") : scheduler.index("--preload") + 2]
    worker = [address if "://" in part else part for part in worker]
    security = Security(tls_ca_file=file, tls_client_key=file, tls_client_cert=file, require_encryption=True)
    with (
        process(scheduler, env, tmp_path / "scheduler.log"),
        process(worker, env, tmp_path / "worker.log"),
        Client(address, security=security, timeout=60) as client,
    ):
        eventually(
            lambda: client.scheduler_info()["workers"], "the worker joins", show=(tmp_path / "worker.log").read_text
        )
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
        assert all(key.startswith(f"{protocol}://") for key in client.scheduler_info()["workers"])
