"""The unpacked bundle that this process works from: its programs on PATH, its libraries where loaders look.

Which one that is stands in the environment, so that every program started from here has it too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from local.bundle.manifest import Manifest
from local.bundle.unpacking import unpack
from local.bundle.verifying import verify
from local.bundle.wheel_files import unpack_wheels
from local.errors import LocalClusterError
from local.host.lock import exclusive
from local.layout import cache_dir

_VARIABLE = "GPUDASK_BUNDLE"
_LOADER_SETTINGS = Path("/etc/ld.so.conf.d/gpudask-bundle.conf")
_CNI_OF_DEBIAN = Path("/usr/lib/cni")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version that runs this, as wheels are chosen by it."""


def active_bundle() -> Path | None:
    """Find the bundle in use; None where programs and wheels are the machine's own, built and fetched."""
    root = os.environ.get(_VARIABLE)
    return Path(root) if root else None


def last_bundle() -> Path | None:
    """Find the bundle that was received last on this machine; None where there was none."""
    link = _bundles() / "current"
    return link.resolve() if link.exists() else None


def receive(directory: Path) -> Path:
    """Check and unpack the bundle in `directory`, unless that was done before. Returns where it is.

    Raises:
        LocalClusterError: it is not whole, or not for this machine; the text names what is missing.
    """
    manifest = Manifest.read(directory)
    root = _bundles() / manifest.key
    link = _bundles() / "current"
    with exclusive(_bundles()):
        if not root.is_dir():
            print(f"… Checking and unpacking the bundle in {directory}", file=sys.stderr, flush=True)
            unpack(verify(directory), directory, root)
        link.with_suffix(".new").unlink(missing_ok=True)
        link.with_suffix(".new").symlink_to(root)
        link.with_suffix(".new").replace(link)
    return root


def activate(root: Path) -> None:
    """Work from the unpacked bundle `root` from now on, and all that is started from here.

    Raises:
        LocalClusterError: it is gone, or has no wheels for this Python.
    """
    if not root.is_dir():
        raise LocalClusterError(f"the unpacked bundle {root} is gone: `up --from-bundle DIR` unpacks it again.")
    tools = str(site("tools", root))
    if tools not in sys.path:
        sys.path.insert(0, tools)
    # The runtime is the bundle's. What reads and writes the machine's own state is the machine's, where it has it.
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    first, last = str(root / "host" / "bin"), str(root / "host" / "tools")
    others = [place for place in places if place not in {first, last}]
    os.environ.update({_VARIABLE: str(root), "PATH": os.pathsep.join([first, *others, last])})
    if shutil.which("iptables") == str(Path(last, "iptables")):
        os.environ["XTABLES_LIBDIR"] = str(root / "host" / "xtables")
    if os.geteuid() == 0:
        offer_libraries(root)


def site(wheels: str, root: Path) -> Path:
    """Unpack the set `wheels` (tools or workers) for this Python, unless it is. Returns what belongs on its path.

    Raises:
        LocalClusterError: the bundle has the set for other versions of Python only.
    """
    source = _wheels(wheels, root)
    if not source.is_dir():
        others = ", ".join(sorted(path.name.rpartition("-")[2] for path in source.parent.glob(f"{wheels}-*")))
        raise LocalClusterError(f"this Python is {PYTHON}, and the bundle has packages for {others}: run it by one.")
    with exclusive(_bundles()):
        return unpack_wheels(source, root / "python" / source.name)


def worker_sites(root: Path) -> list[Path]:
    """Unpack what Dask's pods import, unless it is: the workers' set, and those for CUDA 13 and of RAPIDS where packed.

    Raises:
        LocalClusterError: the bundle has the set for other versions of Python only.
    """
    extra = [site(wheels, root) for wheels in ("cuda13", "rapids") if _wheels(wheels, root).is_dir()]
    return [site("workers", root), *extra]


def _wheels(wheels: str, root: Path) -> Path:
    return root / "wheels" / f"{wheels}-{PYTHON}"


def bundled_program(name: str) -> Path | None:
    """Find a program of our Go modules in the active bundle; None where no bundle is active.

    Raises:
        LocalClusterError: the bundle lacks it.
    """
    root = active_bundle()
    if root is None:
        return None
    found = next(root.glob(f"bin/*/{name}"), None)
    if found is None:
        raise LocalClusterError(f"the bundle {root} has no {name}: `python -m local bundle` packs one that has.")
    return found


def cni_plugins() -> Path:
    """Find the directory of the CNI plugins."""
    root = active_bundle()
    return root / "host" / "cni" if root else _CNI_OF_DEBIAN


def offer_libraries(root: Path, *, settings: Path = _LOADER_SETTINGS, known: Mapping[str, str] | None = None) -> None:
    """Let the machine's loader find those of the bundle's libraries that it lacks, and only those.

    A variable in the environment would not do: runc starts itself once more without any.

    Args:
        root: the unpacked bundle.
        settings: the file for the loader, written only where something is lacking.
        known: what the loader finds, name -> path; default: it is asked.
    """
    libraries = _known_libraries() if known is None else known
    ours = str(_bundles())
    lacking = {
        library.name: library
        for library in (root / "host" / "lib").iterdir()
        if libraries.get(library.name, ours).startswith(ours)
    }
    if not lacking:
        return
    directory = root / "host" / "lacking"
    text = f"{directory}\n"
    if (
        settings.exists()
        and settings.read_text() == text
        and {path.name for path in directory.iterdir()} >= set(lacking)
    ):
        return
    directory.mkdir(exist_ok=True)
    for name, library in lacking.items():
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(library)
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(text)
    if known is None:
        subprocess.run(["/sbin/ldconfig"], check=True)


def _known_libraries() -> dict[str, str]:
    """Ask the loader for its libraries: name -> path, the first it would take."""
    printed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = {}
    for line in printed.splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if arrow:
            found.setdefault(name.split()[0], path)
    return found


def _bundles() -> Path:
    return cache_dir() / "bundles"
