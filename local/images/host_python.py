"""The machine's own Python as a list of files: interpreter, standard library, and the libraries of both.

What an image needs to run this very Python. It finds its modules by where it stands, so all keep their places but the
shared libraries.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from local.host.libraries import linked

LIBRARIES = "/opt/gpudask-libraries"
"""Where the shared libraries are in the image, for LD_LIBRARY_PATH."""

_LEFT_OUT = {
    *("site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo", "tkinter", "lib2to3", "ensurepip"),
    *("pydoc_data", "lib-tk"),
}
_UNUSED_EXTENSIONS = ("_tkinter", "_test", "_ctypes_test", "_xxtest", "xxlimited")
_UNUSED_ENDINGS = (".a", ".opt-1.pyc", ".opt-2.pyc")


def interpreter() -> Path:
    """Find the program itself, behind virtual environments and links."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def python_files(packages: Path) -> dict[str, Path]:
    """List the files of this Python: absolute path in the image -> file here.

    With the libraries that the compiled modules in `packages` need; those modules themselves are left to the caller.
    """
    modules = [path for directory in _standard_library() for path in _modules(directory)]
    files = {str(path): path for path in (interpreter(), *modules)}
    compiled = [path for path in modules if path.suffix == ".so"]
    for program in (interpreter(), *compiled, *packages.rglob("*.so")):
        for name, library in linked(program).items():
            # The kernel starts the loader by its path, the loader finds the others by name.
            place = str(library) if name.startswith("ld-linux") else f"{LIBRARIES}/{name}"
            files[place] = library
    return files


def compile_packages(directory: Path, target: str) -> None:
    """Write bytecode of all below `directory`, which will be at `target` in the image.

    By hash, as the Containerfiles do: pods cannot write it, and would compile at each start, which takes seconds. Files
    that do not compile, templates of libraries for instance, are left as they are.
    """
    options = ["-qq", "-j", "0", "--invalidation-mode", "unchecked-hash", "-s", str(directory), "-p", target]
    subprocess.run([sys.executable, "-m", "compileall", *options, str(directory)], check=False)


def _standard_library() -> list[Path]:
    """Find its directories: of modules in Python, of compiled ones where that is elsewhere."""
    variables = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    variables |= {"installed_base": sys.base_prefix, "installed_platbase": sys.base_exec_prefix}
    found = [Path(sysconfig.get_path(name, vars=variables)) for name in ("stdlib", "platstdlib")]
    return list(dict.fromkeys(found))


def _modules(directory: Path) -> Iterator[Path]:
    for place, directories, names in os.walk(directory, followlinks=True):
        directories[:] = [name for name in directories if name not in _LEFT_OUT and not name.startswith("config-")]
        for name in names:
            path = Path(place, name)
            if path.is_file() and not name.startswith(_UNUSED_EXTENSIONS) and not name.endswith(_UNUSED_ENDINGS):
                yield path
