"""Requests to a node's containerd: list its images, and remove its containers at the end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from local.commands import run, succeeds
from local.errors import LocalClusterError

_ID_LABEL = "gpudask.image-id"
"""The image's id as its builder knows it: containerd's own digest depends on the archive's form."""


@dataclass(frozen=True)
class Containerd:
    """The containerd that listens at `socket`."""

    socket: Path

    @property
    def _ctr(self) -> list[str]:
        return ["ctr", "--address", str(self.socket), "--namespace", "k8s.io"]

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
