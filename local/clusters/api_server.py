"""An API server and its etcd alone: what a test needs that creates objects but runs no pod.

Any number of them run side by side, without root once the binaries are there. No controller runs:
nothing collects garbage, finishes deleting a namespace or makes service accounts.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from local.control_plane.components import ControlPlane
from local.control_plane.endpoints import recorded_endpoints
from local.control_plane.kube_api import KubeApi
from local.host.lock import exclusive, lock_of
from local.host.processes import Part, Processes
from local.host.progress import QUIET, Steps
from local.host.waiting import wait_for_part
from local.layout import Layout
from local.programs.binaries import KUBERNETES, ensure_binary, link_commands
from local.programs.requirements import API_ONLY, ensure_requirements

_PARTS = ("kube-apiserver", "etcd")
_STOP_SECONDS = 0.5  # nothing of it is kept
# Seconds on a machine with nothing to do; minutes on one that is busy. One that ends meanwhile is not waited for.
_READY_DEADLINE_SECONDS = 240
_ANSWER_SECONDS = 60  # on a busy machine, too


@dataclass(frozen=True)
class ApiServer:
    """A running instance: `kubeconfig` is what its clients need."""

    control_plane: ControlPlane

    @classmethod
    def start(cls, name: str, *, audit: bool = False, feature_gates: str = "", steps: Steps = QUIET) -> ApiServer:
        """Start the instance `name`, or find it running and repair it.

        Where that fails, what it started is ended. Its logs stay, and `start` may be tried again.

        Raises:
            LocalClusterError: something is missing, or a part ended at once; the text says which.
        """
        layout = Layout.of(name)
        with exclusive(layout.root):
            layout.root.mkdir(exist_ok=True)
            ensure_requirements(API_ONLY, steps)
            link_commands(ensure_binary(KUBERNETES, steps), KUBERNETES, layout.commands)
            endpoints = recorded_endpoints(layout, "127.0.0.1")
            control_plane = ControlPlane(layout, endpoints, audit=audit, with_nodes=False, feature_gates=feature_gates)
            control_plane.prepare()
            instance = cls(control_plane)
            with steps.step("Starting etcd and the API server", log=instance.processes.log_of("kube-apiserver")):
                instance._ensure(control_plane.etcd(), control_plane.api_server())
        return instance

    @classmethod
    def find(cls, name: str) -> ApiServer | None:
        """Find an instance that was started; None where the name is free or a whole cluster's."""
        layout = Layout.of(name)
        if not layout.kubeconfig.exists() or layout.settings.exists():
            return None
        return cls(ControlPlane(layout, recorded_endpoints(layout, "127.0.0.1"), with_nodes=False))

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.control_plane.layout.kubeconfig

    @property
    def kubectl(self) -> Path:
        """The kubectl of the same version."""
        return self.control_plane.layout.commands / "kubectl"

    @property
    def audit_log(self) -> Path:
        """One JSON event a line, where started with `audit`."""
        return self.control_plane.layout.audit_log

    @property
    def processes(self) -> Processes:
        """Its two processes."""
        return Processes(self.control_plane.layout.records, self.control_plane.layout.logs)

    @property
    def api(self) -> KubeApi:
        """What speaks to it as its administrator, without starting a kubectl for each request."""
        return KubeApi(self.control_plane.endpoints.server, self.control_plane.pki, answer_seconds=_ANSWER_SECONDS)

    def wait_ready(self) -> None:
        """Wait until requests are served."""
        blocker = self.api.blocker
        wait_for_part(self.processes, "kube-apiserver", blocker, deadline_seconds=_READY_DEADLINE_SECONDS)

    def _ensure(self, *parts: Part) -> None:
        """Have the parts running and ready; where that fails, end those that did not run before: nobody knows them."""
        before = {record.name for record in self.processes.all() if record.alive}
        try:
            for part in parts:
                self.processes.ensure(part)
            self.wait_ready()
        except BaseException:  # Ctrl-C, too
            self.processes.stop(
                [part.name for part in parts if part.name not in before], patience_seconds=_STOP_SECONDS
            )
            raise

    def restart(self) -> None:
        """Restart the API server alone: every watch breaks, no object is lost."""
        self.processes.restart("kube-apiserver")
        self.wait_ready()

    def stop(self) -> None:
        """End both processes and delete all of the instance, its logs too."""
        root = self.control_plane.layout.root
        with exclusive(root):
            self.processes.stop(_PARTS, patience_seconds=_STOP_SECONDS)
            shutil.rmtree(root, ignore_errors=True)
            lock_of(root).unlink(missing_ok=True)
