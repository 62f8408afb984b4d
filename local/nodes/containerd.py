"""A node's containerd: requests to it, its shims, and the files that it leaves outside the node's own directories."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from local.errors import LocalClusterError
from local.host.commands import run, succeeds
from local.layout import NodeLayout

PAUSE_IMAGE = "localhost/gpudask/pause:1"
"""What holds a pod's namespaces open: named in containerd's settings, so its tag stays."""

_NAMESPACE = "k8s.io"
_ID_LABEL = "gpudask.image-id"
"""The image's id as its builder knows it: containerd's own digest depends on the archive's form."""
_RUN = Path("/run/containerd")
_CNI_RESULTS = Path("/var/lib/cni/results")


@dataclass(frozen=True)
class Containerd:
    """The containerd that listens at `socket`."""

    socket: Path

    @property
    def _ctr(self) -> list[str]:
        return ["ctr", "--address", str(self.socket), "--namespace", _NAMESPACE]

    def blocker(self) -> str | None:
        """Tell why it is not ready; None when it is."""
        return None if succeeds([*self._ctr, "version"]) else f"{self.socket} does not answer"

    def images(self) -> dict[str, str]:
        """List the images: reference -> the builder's id, empty where it is not known."""
        lines = run([*self._ctr, "images", "list"]).splitlines()[1:]
        images = {line.split()[0]: _label(line.split()[-1]) for line in lines}
        return {name: image_id for name, image_id in images.items() if not name.startswith("sha256:")}

    def blobs(self) -> set[str]:
        """List the digests of what images here are made of, as in `sha256:...`."""
        return set(run([*self._ctr, "content", "list", "--quiet"]).split())

    def load(self, archive: Path, *, reference: str, image_id: str) -> None:
        """Import an archive that holds the image `reference`.

        Raises:
            LocalClusterError: the archive holds no such image, or is none.
        """
        run([*self._ctr, "images", "import", str(archive)])
        if reference not in self.images():
            raise LocalClusterError(f"{archive} was imported, but holds no image {reference}.")
        self._label(reference, image_id)

    def tag(self, reference: str, name: str, image_id: str) -> None:
        """Give an image that is there another name."""
        run([*self._ctr, "images", "tag", "--force", reference, name])
        self._label(name, image_id)

    def _label(self, reference: str, image_id: str) -> None:
        run([*self._ctr, "images", "label", reference, f"{_ID_LABEL}={image_id}"])

    def remove_containers(self) -> None:
        """Forget every container, running or not; images stay."""
        containers = run([*self._ctr, "containers", "list", "--quiet"]).split()
        if containers:
            # Most have ended already, and a task that is gone cannot be deleted: only the second must succeed.
            succeeds([*self._ctr, "tasks", "delete", "--force", *containers])
            run([*self._ctr, "containers", "delete", *containers])


def _label(column: str) -> str:
    """Find the id in `key=value,key=value`."""
    labels = dict(pair.partition("=")[::2] for pair in column.split(","))
    return labels.get(_ID_LABEL, "")


def kill_shims(socket: Path) -> None:
    """Kill the shims of the containerd that listens at `socket`, and of no other: they outlive it on purpose."""
    for pid in shims_of(socket):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def shims_of(socket: Path) -> list[int]:
    """Find the shims that report to `socket`, by what they were told."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(FileNotFoundError, ProcessLookupError):
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if Path(arguments[0]).name.startswith("containerd-shim") and str(socket) in arguments:
                found.append(int(process.name))
    return found


def container_ids(node: NodeLayout) -> set[str]:
    """List the containers, sandboxes too, that the node's containerd has started and not deleted."""
    tasks = node.containerd_state / "io.containerd.runtime.v2.task" / _NAMESPACE
    return {path.name for path in tasks.iterdir()} if tasks.is_dir() else set()


def remove_files_of(
    node: NodeLayout, ids: Iterable[str], *, runtime: Path = _RUN, results: Path = _CNI_RESULTS
) -> None:
    """Remove what containerd, runc and CNI noted of these containers, which must have ended.

    They take it back when a container is deleted; of containers that were killed it stays.
    """
    for container in ids:
        (runtime / "s" / _shim_socket(node, container)).unlink(missing_ok=True)
        shutil.rmtree(runtime / "runc" / _NAMESPACE / container, ignore_errors=True)
        for result in results.glob(f"*-{container}-*"):
            result.unlink()


def _shim_socket(node: NodeLayout, container: str) -> str:
    """Name the socket of a shim as containerd's `shim.SocketAddress` does."""
    return hashlib.sha256(str(node.socket / _NAMESPACE / container).encode()).hexdigest()
