"""One node: its containerd and its kubelet, with all that two of them on a machine must not share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import yaml

from local.bundle.activation import cni_plugins
from local.control_plane.components import DNS_ADDRESS, ControlPlane
from local.control_plane.health import page_blocker
from local.control_plane.kube_api import KubeApi
from local.control_plane.kubeconfig import write_kubeconfig
from local.control_plane.pki import Identity
from local.errors import LocalClusterError
from local.host.processes import Part
from local.layout import NodeLayout
from local.nodes.cgroups import cgroup_of, ensure_cgroup
from local.nodes.containerd import PAUSE_IMAGE
from local.nodes.node_spec import GPU_LABEL, GPU_TAINT, NodeSpec
from local.nodes.readiness import readiness_blocker

_HEALTH_PORT = 10248
_MAX_PODS = 250


@dataclass(frozen=True)
class Node:
    """A node of a cluster."""

    spec: NodeSpec
    control_plane: ControlPlane

    @property
    def layout(self) -> NodeLayout:
        """Paths of its files."""
        return self.control_plane.layout.node(self.spec.name)

    def prepare(self) -> None:
        """Write certificates and settings, and make the node's control groups."""
        identity = self.spec.identity
        serving = (self.spec.name, self.spec.address)
        self.control_plane.pki.ensure(
            Identity(identity, f"system:node:{self.spec.name}", ("system:nodes",), hosts=serving)
        )
        write_kubeconfig(
            self.control_plane.layout.kubeconfig_of(identity),
            server=self.control_plane.endpoints.server,
            pki=self.control_plane.pki,
            identity=identity,
        )
        self.layout.cni_config.mkdir(parents=True, exist_ok=True)
        (self.layout.cni_config / "10-bridge.conflist").write_text(json.dumps(self._network()))
        self.layout.containerd_config.write_text(self._containerd_config())
        # Pods of the policy Default get this: no name server of the machine's is needed, nor asked.
        (self.layout.root / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        self.layout.kubelet_config.write_text(yaml.safe_dump(self._kubelet_config(), sort_keys=False))
        ensure_cgroup(self._cgroup)

    def containerd(self) -> Part:
        """Start the node's own containerd: two kubelets on one would kill each other's pods."""
        return Part(self.spec.containerd, ("containerd", f"--config={self.layout.containerd_config}"))

    def kubelet(self) -> Part:
        """Start the kubelet."""
        command = (
            str(self.control_plane.layout.commands / "kubelet"),
            f"--kubeconfig={self.control_plane.layout.kubeconfig_of(self.spec.identity)}",
            f"--config={self.layout.kubelet_config}",
            f"--hostname-override={self.spec.name}",
            f"--root-dir={self.layout.kubelet_root}",
            f"--node-ip={self.spec.address}",
        )
        return Part(self.spec.kubelet, command)

    def blocker(self, api: KubeApi, *, since: float = 0.0) -> str | None:
        """Tell why the node is not ready; None when it is.

        The kubelet itself is asked first: what it reported outlives it. Of its reports those count that it made at
        `since`, in seconds since 1970, or later.
        """
        if blocker := page_blocker(f"http://{self.spec.address}:{_HEALTH_PORT}/healthz"):
            return f"its kubelet is not healthy: {blocker}"
        try:
            node = api.get(f"/api/v1/nodes/{self.spec.name}")
        except LocalClusterError as error:
            return str(error)
        return "its kubelet has not registered it yet" if node is None else readiness_blocker(node, since)

    def offer_gpus(self, api: KubeApi) -> None:
        """Put pretended GPUs on the node as a device plugin would: the kubelet keeps what it finds there.

        Real ones come from the plugin; then the label alone is missing.
        """
        path = f"/api/v1/nodes/{self.spec.name}"
        node = api.get(path)
        assert node is not None
        wanted = str(self.spec.gpus)
        if not self.spec.device_plugin and node["status"]["allocatable"].get("nvidia.com/gpu") != wanted:
            places = ("/status/capacity", "/status/allocatable")
            api.json_patch(
                f"{path}/status",
                [{"op": "add", "path": f"{place}/nvidia.com~1gpu", "value": wanted} for place in places],
            )
        if node["metadata"]["labels"].get(GPU_LABEL) != "true":
            label = GPU_LABEL.replace("/", "~1")
            api.json_patch(path, [{"op": "add", "path": f"/metadata/labels/{label}", "value": "true"}])
        taints = node["spec"].get("taints", [])
        if self.spec.tainted and GPU_TAINT not in taints:
            api.json_patch(path, [{"op": "add", "path": "/spec/taints", "value": [*taints, GPU_TAINT]}])

    @property
    def _cgroup(self) -> str:
        return cgroup_of(self.control_plane.layout.name, self.spec.name)

    def _network(self) -> dict[str, Any]:
        """Without `ipMasq`: pods of other nodes shall see a pod's own address (see network.py)."""
        bridge = {
            "type": "bridge",
            "bridge": self.spec.bridge,
            "isDefaultGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": self.spec.subnet}]],
                "dataDir": str(self.layout.addresses),
            },
        }
        return {"cniVersion": "1.0.0", "name": self.spec.network, "plugins": [bridge]}

    def _containerd_config(self) -> str:
        # restrict_oom_score_adj: without CAP_SYS_RESOURCE every container would fail to start.
        return f"""\
version = 2
root = "{self.layout.containerd_root}"
state = "{self.layout.containerd_state}"
[grpc]
  address = "{self.layout.socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{self.layout.containerd_state}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{PAUSE_IMAGE}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_plugins()}"
    conf_dir = "{self.layout.cni_config}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""

    def _kubelet_config(self) -> dict[str, Any]:
        pki = self.control_plane.pki
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.spec.address,
            "healthzBindAddress": self.spec.address,
            "healthzPort": _HEALTH_PORT,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(pki.authority)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(pki.certificate(self.spec.identity)),
            "tlsPrivateKeyFile": str(pki.key(self.spec.identity)),
            "containerRuntimeEndpoint": f"unix://{self.layout.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self._cgroup,
            "failCgroupV1": False,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "clusterDNS": [DNS_ADDRESS],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self.layout.root / "resolv.conf"),
            "podLogsDir": str(self.layout.pod_logs),
            "volumePluginDir": str(self.layout.root / "volume-plugins"),
            "registerNode": True,
            # From its first moment, lest another pod be placed there before the taint comes.
            "registerWithTaints": [GPU_TAINT] if self.spec.tainted else [],
            "maxPods": _MAX_PODS,
            "serializeImagePulls": False,
            # Images are imported by hand: none may be collected, and nothing could pull it again.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi"},
            "makeIPTablesUtilChains": False,
            "syncFrequency": "10s",
            "nodeStatusUpdateFrequency": "5s",
        }
