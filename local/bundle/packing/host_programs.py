"""The programs that Debian brings and a bare machine lacks, with the libraries that they are linked to.

They are taken as they are installed here. The C library stays out: it must be the target's own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from local.bundle.packing.writing import Item
from local.errors import LocalClusterError
from local.host.libraries import linked

_RUNTIME = ("etcd", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "busybox")
_TOOLS = ("ip", "conntrack", "iptables", "iptables-save", "iptables-restore")
_TOOLS_V6 = ("ip6tables", "ip6tables-save", "ip6tables-restore")
_CNI_DIRECTORY = Path("/usr/lib/cni")
_CNI = ("bridge", "host-local", "loopback")
_C_LIBRARY = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl)\.so\.\d+)$")
_LARGE = 4 << 20
"""A program above this, in bytes, is an archive of its own: they unpack side by side."""


def host_items() -> Iterator[Item]:
    """Find them on this machine.

    Raises:
        LocalClusterError: one is not installed here.
    """
    programs = {f"host/bin/{name}": _installed(name) for name in _RUNTIME}
    programs |= {f"host/cni/{name}": _CNI_DIRECTORY / name for name in _CNI}
    links = {}
    for name in (*_TOOLS, *_TOOLS_V6):
        program = _installed(name).resolve()
        programs[f"host/tools/{program.name}"] = program
        if program.name != name:
            links[f"host/tools/{name}"] = program.name
    extensions = xtables_directory(programs["host/tools/" + links.get("host/tools/iptables", "iptables")])
    libraries = libraries_of(programs.values())
    for path, source in programs.items():
        large = source.stat().st_size > _LARGE
        yield Item(path, source.name if large else "host", source.resolve(), executable=True)
    for path, target in links.items():
        yield Item(path, "host", link=target)
    for name, source in libraries.items():
        yield Item(f"host/lib/{name}", "host", source)
    for source in sorted(extensions.glob("*.so")):
        if source.is_symlink():
            yield Item(f"host/xtables/{source.name}", "host", link=source.resolve().name)
        else:
            yield Item(f"host/xtables/{source.name}", "host", source)


def libraries_of(programs: Iterable[Path]) -> dict[str, Path]:
    """Find the shared libraries of programs, but for the C library's: name -> file."""
    found: dict[str, Path] = {}
    for program in programs:
        found |= {name: path for name, path in linked(program).items() if not _C_LIBRARY.match(name)}
    return found


def xtables_directory(iptables: Path) -> Path:
    """Find where `iptables` has its extensions, beside the library that loads them."""
    library = linked(iptables).get("libxtables.so.12")
    places = [library.resolve().parent / "xtables"] if library else []
    places += [Path(f"/usr{place}") for place in places]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise LocalClusterError(f"{iptables} has no directory of extensions: `apt-get install iptables`.")
    return found


def _installed(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise LocalClusterError(
            f"{name} is not installed here: `python -m local up` once installs what a bundle takes."
        )
    return Path(found)
