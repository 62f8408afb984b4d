"""Images on the nodes: each node has a store of its own, and each image goes into all of them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from local.host.hashing import content_key
from local.images.archives import read_archive
from local.images.scratch import write_archive
from local.layout import cache_dir
from local.nodes.containerd import PAUSE_IMAGE, Containerd


@dataclass(frozen=True)
class Loadable:
    """An image in an archive, and the names that it shall have on the nodes."""

    archive: Path
    reference: str
    image_id: str
    other_names: tuple[str, ...] = ()

    @classmethod
    def from_archive(cls, archive: Path) -> Loadable:
        """Read the names from the archive itself."""
        found = read_archive(archive)
        return cls(archive, found.reference, found.image_id)

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return (self.reference, *self.other_names)


@dataclass(frozen=True)
class NodeImages:
    """The image stores of nodes: name -> containerd's socket."""

    sockets: Mapping[str, Path]

    def of(self, node: str) -> Containerd:
        """One node's store."""
        return Containerd(self.sockets[node])

    def lacking(self, image_id: str, names: tuple[str, ...]) -> list[str]:
        """Name the nodes that do not have that very image under all its names."""
        return [node for node in self.sockets if any(self.of(node).images().get(name) != image_id for name in names)]

    def common_blobs(self) -> set[str]:
        """List the digests of the layers that every node has."""
        return set.intersection(*(self.of(node).blobs() for node in self.sockets))

    def load(self, image: Loadable) -> list[str]:
        """Import an image where it is lacking. Returns the nodes that lacked it."""
        lacking = self.lacking(image.image_id, image.names)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: _load(self.of(node), image), lacking))
        return lacking


def _load(store: Containerd, image: Loadable) -> None:
    if store.images().get(image.reference) != image.image_id:
        store.load(image.archive, reference=image.reference, image_id=image.image_id)
    for name in image.other_names:
        store.tag(image.reference, name, image.image_id)


def pause_image() -> Loadable:
    """Have the image that holds a pod's namespaces open: busybox, asleep."""
    busybox = Path(shutil.which("busybox") or "/bin/busybox")
    command = ("/busybox", "sleep", "2147483647")
    key = content_key(texts=(PAUSE_IMAGE, *command), files=[busybox], relative_to=busybox.parent)
    return _scratch(f"pause-{key}", PAUSE_IMAGE, busybox, command)


def coredns_image(binary: Path) -> Loadable:
    """Have CoreDNS as an image; its tag is its binary's place in the cache."""
    key = binary.parent.name
    return _scratch(f"coredns-{key}", f"localhost/gpudask/coredns:{key}", binary, ("/coredns",))


def _scratch(name: str, reference: str, binary: Path, command: tuple[str, ...]) -> Loadable:
    archive = cache_dir() / "images" / f"{name}.tar"
    if not archive.exists():
        unfinished = archive.with_suffix(".new")
        write_archive(unfinished, reference=reference, files={command[0]: binary}, command=command)
        unfinished.replace(archive)
    return Loadable.from_archive(archive)
