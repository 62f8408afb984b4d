"""Paths of all files: the state of each cluster, and the caches that outlive all of them.

Paths only: nothing here reads or writes a file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
GO_MODULES = REPOSITORY / "local" / "programs" / "go"


def cache_dir() -> Path:
    """Binaries, wheels, base images: what is slow to make and safe to keep."""
    return Path(os.environ.get("GPUDASK_CACHE_DIR", Path.home() / ".cache" / "gpudask"))


def clusters_dir() -> Path:
    """One directory per cluster name."""
    configured = os.environ.get("GPUDASK_LOCAL_DIR")
    return Path(configured) if configured else cache_dir() / "local"


@dataclass(frozen=True)
class NodeLayout:
    """Paths of one node's files. Unix sockets limit the length of `root` to about 70 characters."""

    root: Path

    @property
    def containerd_root(self) -> Path:
        """Images and their unpacked layers: kept by `down`, since importing them takes longest."""
        return self.root / "images"

    @property
    def containerd_state(self) -> Path:
        """Mounts of running containers."""
        return self.root / "state"

    @property
    def socket(self) -> Path:
        """The socket of containerd."""
        return self.root / "containerd.sock"

    @property
    def containerd_config(self) -> Path:
        """Settings of containerd."""
        return self.root / "containerd.toml"

    @property
    def cni_config(self) -> Path:
        """The directory of network configurations."""
        return self.root / "cni"

    @property
    def addresses(self) -> Path:
        """The addresses that pods hold."""
        return self.root / "addresses"

    @property
    def kubelet_root(self) -> Path:
        """Pods' volumes."""
        return self.root / "kubelet"

    @property
    def kubelet_config(self) -> Path:
        """The kubelet's settings."""
        return self.root / "kubelet.yaml"

    @property
    def pod_logs(self) -> Path:
        """The logs that `kubectl logs` reads."""
        return self.root / "pod-logs"


@dataclass(frozen=True)
class Layout:
    """Paths of one cluster's files, under a directory named after it."""

    root: Path

    @classmethod
    def of(cls, name: str) -> Layout:
        """Find the directory of the cluster `name`."""
        return cls(clusters_dir() / name)

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.root.name

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        """One log a part."""
        return self.root / "logs"

    @property
    def records(self) -> Path:
        """One record a running part: its pid and how it was started."""
        return self.root / "processes"

    @property
    def etcd(self) -> Path:
        """The cluster's content."""
        return self.root / "etcd"

    @property
    def commands(self) -> Path:
        """Links to the binaries by the names that they act as."""
        return self.root / "bin"

    @property
    def nodes(self) -> Path:
        """One directory a node."""
        return self.root / "nodes"

    @property
    def settings(self) -> Path:
        """The settings of the last `up`."""
        return self.root / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.root / "admin.kubeconfig"

    @property
    def audit_log(self) -> Path:
        """One JSON event a line, metadata level."""
        return self.logs / "audit.jsonl"

    def node(self, name: str) -> NodeLayout:
        """Find the part of this directory that the node `name` has for itself."""
        return NodeLayout(self.nodes / name)

    def kubeconfig_of(self, identity: str) -> Path:
        """Find the kubeconfig of a part that speaks to the API server."""
        return self.root / f"{identity}.kubeconfig"
