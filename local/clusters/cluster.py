"""The whole cluster: brought up or repaired in order, each part only where it is not as wanted."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from local.bundle.activation import activate, active_bundle
from local.clusters.no_proxy import reach_cluster_directly
from local.clusters.settings import Settings
from local.clusters.teardown import tear_down
from local.control_plane.components import HEALTH_PAGES, ControlPlane
from local.control_plane.coredns import apply_dns, dns_blocker
from local.control_plane.endpoints import recorded_endpoints
from local.control_plane.health import page_blocker
from local.control_plane.kube_api import KubeApi
from local.errors import LocalClusterError
from local.host.lock import exclusive
from local.host.processes import Part, Processes
from local.host.progress import QUIET, Steps
from local.host.waiting import wait_for_part
from local.images.node_images import NodeImages, coredns_image, pause_image
from local.layout import Layout
from local.nodes.devices import DEVICE_PLUGIN_PART, device_plugin, gpus_blocker, plugins_socket_blocker
from local.nodes.network import ensure_network, policies_blocker, put_refusals_first
from local.nodes.node import Node
from local.nodes.pretended_gpus import apply_pretended_gpus
from local.programs.binaries import COREDNS, DEVICE_PLUGIN, HELM, KUBE_ROUTER, KUBERNETES, ensure_binary, link_commands
from local.programs.requirements import DEVICE_PLUGIN_BUILD, cluster_requirements, ensure_requirements

_USUAL_PORTS = (6443, 2379, 2380)
_NODE_DEADLINE_SECONDS = 90


@dataclass(frozen=True)
class Cluster:
    """A cluster as `settings` want it. The machine's iptables allow one at a time."""

    layout: Layout
    settings: Settings

    @classmethod
    def find(cls, name: str = "default") -> Cluster:
        """Find a cluster that `up` has made.

        Raises:
            LocalClusterError: there is none.
        """
        layout = Layout.of(name)
        settings = Settings.read(layout)
        if settings is None:
            raise LocalClusterError(f"no cluster {name!r} in {layout.root.parent}: `python -m local up` makes one.")
        if settings.bundle:
            activate(Path(settings.bundle))
        reach_cluster_directly()
        return cls(layout, settings)

    @classmethod
    def up(cls, name: str = "default", settings: Settings | None = None, steps: Steps = QUIET) -> Cluster:
        """Bring the cluster up, or repair it.

        Raises:
            LocalClusterError: the machine lacks something, or a part does not start; the text says what.
        """
        settings = replace(settings or Settings(), bundle=str(active_bundle() or ""))
        cluster = cls(Layout.of(name), settings)
        reach_cluster_directly()
        with exclusive(cluster.layout.root):
            cluster.layout.root.mkdir(exist_ok=True)
            cluster._refuse_other_nodes()
            ensure_requirements(cluster_requirements(), steps)
            if settings.device_plugin and not settings.bundle:
                ensure_requirements(DEVICE_PLUGIN_BUILD, steps)
            programs = (KUBERNETES, COREDNS, HELM, *([KUBE_ROUTER] if settings.enforces_policies else []))
            binaries = {program: ensure_binary(program, steps) for program in programs}
            for program, binary in binaries.items():
                link_commands(binary, program, cluster.layout.commands)
            ensure_network(cluster.settings.specs)
            cluster.settings.write(cluster.layout)
            cluster._start(steps, coredns=binaries[COREDNS])
        return cluster

    def down(self, steps: Steps = QUIET) -> None:
        """End everything and leave nothing behind but images, binaries and logs."""
        with exclusive(self.layout.root):
            tear_down(self.layout, self.settings.specs, steps)

    def restart(self, part: str) -> None:
        """Restart one part by its name in `status`, and wait until it works again.

        Raises:
            LocalClusterError: there is no such part, or it does not come back.
        """
        with exclusive(self.layout.root):
            try:
                self.processes.restart(part)
            except KeyError:
                names = ", ".join(record.name for record in self.processes.all())
                raise LocalClusterError(f"no part is named {part!r}. There are: {names}.") from None
            if part in {"etcd", "kube-apiserver"}:
                self._wait_api()
            if part in HEALTH_PAGES:
                self._wait_page(part)
            for node in self.nodes:
                if part == node.spec.containerd:
                    self.processes.restart(node.spec.kubelet)
                if part in {node.spec.containerd, node.spec.kubelet}:
                    self._wait_node(node)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.layout.kubeconfig

    @property
    def kubectl(self) -> Path:
        """The kubectl of the same version; helm lies beside it."""
        return self.layout.commands / "kubectl"

    @property
    def processes(self) -> Processes:
        """Its running parts."""
        return Processes(self.layout.records, self.layout.logs)

    @property
    def control_plane(self) -> ControlPlane:
        """Its control plane, which listens where every node's pods reach it: on the first bridge."""
        address = self.settings.specs[0].address
        endpoints = recorded_endpoints(self.layout, address, _USUAL_PORTS)
        return ControlPlane(self.layout, endpoints, audit=self.settings.audit)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Its nodes."""
        control_plane = self.control_plane
        return tuple(Node(spec, control_plane) for spec in self.settings.specs)

    @property
    def api(self) -> KubeApi:
        """Its API server, as the administrator."""
        return KubeApi(self.control_plane.endpoints.server, self.control_plane.pki)

    @property
    def images(self) -> NodeImages:
        """The images on its nodes."""
        return NodeImages({node.spec.name: node.layout.socket for node in self.nodes})

    def _refuse_other_nodes(self) -> None:
        previous = Settings.read(self.layout)
        if previous and previous.nodes != self.settings.nodes:
            raise LocalClusterError(
                f"the cluster has the nodes {', '.join(previous.nodes)}, wanted are {', '.join(self.settings.nodes)}: "
                f"`python -m local down` first."
            )

    def _start(self, steps: Steps, *, coredns: Path) -> None:
        control_plane, nodes, log = self.control_plane, self.nodes, self.processes.log_of
        control_plane.prepare()
        for node in nodes:
            node.prepare()
        with steps.step("Starting etcd, the API server and containerd", log=log("kube-apiserver")):
            self._ensure(control_plane.etcd(), control_plane.api_server())
            for node in nodes:
                self._ensure_containerd(node)
            self._wait_api()
        if self.settings.pretends_gpus:
            apply_pretended_gpus(self.api)  # in force long before there is a node that offers one
        with steps.step("Starting the other parts", log=self.layout.logs):
            self._ensure(control_plane.controller_manager(), control_plane.scheduler())
            for node in nodes:
                wait_for_part(self.processes, node.spec.containerd, self.images.of(node.spec.name).blocker)
            for part in ("kube-controller-manager", "kube-scheduler"):
                self._wait_page(part)
        with steps.step("Loading the system's images"):
            self.images.load(pause_image())
            self.images.load(coredns_image(coredns))
        with steps.step("Waiting for the nodes", log=self.layout.logs):
            for node in nodes:
                self._ensure_kubelet(node)
            self._ensure(control_plane.proxy(nodes[0].spec.name))
            apply_dns(self.api, image=coredns_image(coredns).reference, node=nodes[0].spec.name)
            with ThreadPoolExecutor() as pool:
                list(pool.map(self._wait_node, nodes))
            self._wait_page("kube-proxy")
        if self.settings.device_plugin:
            binary = ensure_binary(DEVICE_PLUGIN, steps)
            with steps.step("Offering the machine's GPUs", log=log(DEVICE_PLUGIN_PART)):
                self._ensure(device_plugin(binary))
                wait_for_part(self.processes, DEVICE_PLUGIN_PART, lambda: gpus_blocker(self.api, nodes[0].spec.name))
        with steps.step("Waiting until a pod answers through its Service: CoreDNS", log=log(nodes[0].spec.kubelet)):
            wait_for_part(self.processes, nodes[0].spec.kubelet, lambda: dns_blocker(self.api))
        if self.settings.enforces_policies:
            with steps.step("Having NetworkPolicies enforced", log=log("kube-router")):
                self._ensure_firewall(control_plane.firewall(nodes[0].spec.name))
                self._wait_page("kube-router")
                wait_for_part(self.processes, "kube-router", policies_blocker)

    def _ensure(self, *parts: Part) -> None:
        for part in parts:
            self.processes.ensure(part)

    def _ensure_containerd(self, node: Node) -> None:
        """Have the node's containerd, and where it is a new one end the kubelet: it knew only the old one.

        It would call itself ready for some seconds more, then unready until it has connected again.
        """
        if self.processes.ensure(node.containerd()):
            self.processes.stop([node.spec.kubelet])

    def _ensure_kubelet(self, node: Node) -> None:
        """Have the node's kubelet, one after the other: see `plugins_socket_blocker`."""
        started = time.time()
        if self.processes.ensure(node.kubelet()):
            wait_for_part(self.processes, node.spec.kubelet, lambda: plugins_socket_blocker(started))

    def _ensure_firewall(self, firewall: Part) -> None:
        """Have kube-router, once a Service works: it writes whole tables, and kube-proxy makes its chains just once."""
        record = self.processes.find(firewall.name)
        if record is None or not record.alive:
            put_refusals_first()
        self._ensure(firewall)

    def _wait_page(self, part: str) -> None:
        wait_for_part(self.processes, part, lambda: page_blocker(HEALTH_PAGES[part]))

    def _wait_api(self) -> None:
        wait_for_part(self.processes, "kube-apiserver", self.api.blocker)

    def _wait_node(self, node: Node) -> None:
        record = self.processes.find(node.spec.kubelet)
        since = record.started if record else 0.0
        wait_for_part(
            self.processes,
            node.spec.kubelet,
            lambda: node.blocker(self.api, since=since),
            deadline_seconds=_NODE_DEADLINE_SECONDS,
        )
        if node.spec.is_gpu:
            node.offer_gpus(self.api)
