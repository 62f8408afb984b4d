"""etcd, API server, controllers, and what writes the packet rules: how each is started, for both kinds of cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass

from local.control_plane.endpoints import Endpoints
from local.control_plane.kubeconfig import write_kubeconfig
from local.control_plane.pki import Identity, Pki
from local.host.processes import Part
from local.layout import Layout

SERVICE_RANGE = "10.96.0.0/16"
API_ADDRESS = "10.96.0.1"
DNS_ADDRESS = "10.96.0.10"
POD_RANGE = "10.244.0.0/16"

_SERVER_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
    "127.0.0.1",
    API_ADDRESS,
)
ADMIN = Identity("admin", "admin", ("system:masters",))
KUBELET_CLIENT = Identity("apiserver-kubelet-client", "kube-apiserver", ("system:masters",))
CONTROLLER_MANAGER = Identity("controller-manager", "system:kube-controller-manager")
SCHEDULER = Identity("scheduler", "system:kube-scheduler")
PROXY = Identity("proxy", "system:kube-proxy")
FIREWALL = Identity("kube-router", "kube-router", ("system:masters",))
"""Kubernetes has no role for it as it has for its own parts."""

HEALTH_PAGES = {
    "kube-controller-manager": "https://127.0.0.1:10257/healthz",
    "kube-scheduler": "https://127.0.0.1:10259/healthz",
    "kube-proxy": "http://127.0.0.1:10256/healthz",
    "kube-router": "http://127.0.0.1:20244/healthz",
}
"""The parts that the API server does not speak for, on their usual ports."""

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True)
class ControlPlane:
    """The programs of one control plane. `with_nodes` tells a whole cluster from an API alone.

    `feature_gates`: of the API server, as its flag takes them.
    """

    layout: Layout
    endpoints: Endpoints
    audit: bool = False
    with_nodes: bool = True
    feature_gates: str = ""

    @property
    def pki(self) -> Pki:
        """The cluster's keys and certificates."""
        return Pki(self.layout.pki)

    def prepare(self) -> None:
        """Write the certificates, kubeconfigs and the audit policy."""
        names = (*_SERVER_NAMES, *({self.endpoints.address} - set(_SERVER_NAMES)))
        apiserver = Identity("apiserver", "kube-apiserver", hosts=names)
        parties = (ADMIN, CONTROLLER_MANAGER, SCHEDULER, PROXY, FIREWALL) if self.with_nodes else (ADMIN,)
        self.pki.ensure(apiserver, KUBELET_CLIENT, *parties)
        for party in parties:
            path = self.layout.kubeconfig_of(party.file)
            write_kubeconfig(path, server=self.endpoints.server, pki=self.pki, identity=party.file)
        (self.layout.root / "audit-policy.json").write_text(json.dumps(_AUDIT_POLICY))

    def etcd(self) -> Part:
        """Start etcd without fsync: the cluster is thrown away anyway, and the disk is shared."""
        client = f"http://127.0.0.1:{self.endpoints.etcd_port}"
        peer = f"http://127.0.0.1:{self.endpoints.etcd_peer_port}"
        command = (
            "etcd",
            f"--data-dir={self.layout.etcd}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )
        return Part("etcd", command, self._environment)

    def api_server(self) -> Part:
        """Start the API server with the admission plugins that are on by default."""
        pki = self.pki
        command = [
            str(self.layout.commands / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self.endpoints.etcd_port}",
            f"--bind-address={self.endpoints.address}",
            f"--advertise-address={self.endpoints.address}",
            f"--secure-port={self.endpoints.port}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--client-ca-file={pki.authority}",
            f"--tls-cert-file={pki.certificate('apiserver')}",
            f"--tls-private-key-file={pki.key('apiserver')}",
            f"--kubelet-certificate-authority={pki.authority}",
            f"--kubelet-client-certificate={pki.certificate(KUBELET_CLIENT.file)}",
            f"--kubelet-client-key={pki.key(KUBELET_CLIENT.file)}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={pki.service_account_key}",
            f"--service-account-signing-key-file={pki.service_account_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
        ]
        if self.audit:
            policy = self.layout.root / "audit-policy.json"
            command += [
                f"--audit-policy-file={policy}",
                f"--audit-log-path={self.layout.audit_log}",
                "--audit-log-maxsize=4000",
            ]
        if self.feature_gates:
            command.append(f"--feature-gates={self.feature_gates}")
        if not self.with_nodes:
            # Nothing makes service accounts here, and a loopback address is refused as the Service's endpoint.
            command += ["--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"]
        return Part("kube-apiserver", tuple(command), self._environment)

    def controller_manager(self) -> Part:
        """Start the controllers, with a request rate that lets tests delete many pods at once."""
        command = (
            str(self.layout.commands / "kube-controller-manager"),
            *self._kubeconfig_flags(CONTROLLER_MANAGER),
            "--bind-address=127.0.0.1",
            f"--root-ca-file={self.pki.authority}",
            f"--service-account-private-key-file={self.pki.service_account_key}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--allocate-node-cidrs=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        )
        return Part("kube-controller-manager", command)

    def scheduler(self) -> Part:
        """Start the scheduler."""
        flags = (*self._kubeconfig_flags(SCHEDULER), "--bind-address=127.0.0.1", "--leader-elect=false")
        return Part("kube-scheduler", (str(self.layout.commands / "kube-scheduler"), *flags))

    def proxy(self, node: str) -> Part:
        """Start the one proxy that all nodes share: they share the machine's iptables."""
        command = (
            str(self.layout.commands / "kube-proxy"),
            f"--kubeconfig={self.layout.kubeconfig_of(PROXY.file)}",
            f"--hostname-override={node}",
            f"--cluster-cidr={POD_RANGE}",
            "--proxy-mode=iptables",
            "--conntrack-max-per-core=0",
            "--healthz-bind-address=127.0.0.1",
            "--metrics-bind-address=127.0.0.1",
            "--iptables-min-sync-period=100ms",
        )
        return Part("kube-proxy", command)

    def firewall(self, node: str) -> Part:
        """Start what enforces NetworkPolicies, one for all nodes as well; `node` may be any of them."""
        command = (
            str(self.layout.commands / "kube-router"),
            f"--kubeconfig={self.layout.kubeconfig_of(FIREWALL.file)}",
            f"--hostname-override={node}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
        )
        return Part("kube-router", command)

    @property
    def _environment(self) -> dict[str, str]:
        """Of an API alone: it lives for minutes, and starts in a fifth less of CPU time with 100 MB more of garbage."""
        return {} if self.with_nodes else {"GOGC": "400"}

    def _kubeconfig_flags(self, identity: Identity) -> tuple[str, ...]:
        path = self.layout.kubeconfig_of(identity.file)
        return tuple(f"--{use}kubeconfig={path}" for use in ("", "authentication-", "authorization-"))
