"""What goes into a bundle beside the programs: parts of lock files, wheels, libraries."""

from __future__ import annotations

import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from local.bundle.activation import offer_libraries
from local.bundle.packing.host_programs import libraries_of
from local.bundle.packing.wheel_sets import TOOLS, excerpt
from local.bundle.start import named_bundle
from local.bundle.wheel_files import store_wheel, unpack_wheels
from local.errors import LocalClusterError
from local.host.libraries import parse_ldd

_LDD = """\
\tlinux-vdso.so.1 (0x00007ffd4a5f2000)
\tlibseccomp.so.2 => /lib/x86_64-linux-gnu/libseccomp.so.2 (0x00007f0c8e1c9000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0c8dfe8000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f0c8eb1d000)
"""


def test_what_the_loader_prints_is_read():
    assert parse_ldd(_LDD, Path("/runc")) == {
        "libseccomp.so.2": Path("/lib/x86_64-linux-gnu/libseccomp.so.2"),
        "libc.so.6": Path("/lib/x86_64-linux-gnu/libc.so.6"),
        "ld-linux-x86-64.so.2": Path("/lib64/ld-linux-x86-64.so.2"),
    }
    with pytest.raises(LocalClusterError, match=r"/runc needs libx\.so\.1, which is not installed here"):
        parse_ldd("\tlibx.so.1 => not found\n", Path("/runc"))


def test_the_c_library_stays_the_targets_own():
    found = libraries_of([Path("/bin/ls").resolve()])
    assert found
    assert not {"libc.so.6", "ld-linux-x86-64.so.2"} & set(found)


def test_a_lock_is_cut_by_names_with_its_hashes():
    lock = (
        "a==1 \\\n    --hash=sha256:1\n    # via x\nb-c==2 ; python_version < '3.12' \\\n    --hash=sha256:2\na-b==3\n"
    )
    assert excerpt(lock, lambda name: name == "b-c") == lock[lock.index("b-c") : lock.index("a-b")]
    assert excerpt(lock, lambda name: name in {"a", "a-b"}) == lock[: lock.index("b-c")] + "a-b==3\n"


def test_the_command_lines_packages_are_whole():
    """A package that one of them begins to need would be missing on a machine without network."""
    needed, asked = set[str](), ["typer", "rich", "pyyaml", "cryptography"]
    while asked:
        name = canonicalize_name(asked.pop())
        if name not in needed:
            needed.add(name)
            requirements = map(Requirement, metadata.requires(name) or [])
            asked += [r.name for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    assert needed == TOOLS


def test_wheels_keep_their_files(tmp_path: Path):
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "x.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("x/__init__.py", "one = 1\n" * 100)
        wheel.writestr("x-1.data/platlib/x/more.py", "two")
        wheel.writestr("x-1.data/scripts/x", "three")
    store_wheel(tmp_path / "x.whl", tmp_path / "wheels" / "x.whl")
    with zipfile.ZipFile(tmp_path / "wheels" / "x.whl") as stored:
        assert {entry.compress_type for entry in stored.infolist()} == {zipfile.ZIP_STORED}
    site = unpack_wheels(tmp_path / "wheels", tmp_path / "site")
    found = {str(path.relative_to(site)): path.read_text() for path in site.rglob("*") if path.is_file()}
    assert found == {"x/__init__.py": "one = 1\n" * 100, "x/more.py": "two"}


def test_only_libraries_that_are_lacking_are_offered(tmp_path: Path):
    root, settings = tmp_path / "bundle", tmp_path / "etc" / "bundle.conf"
    (root / "host" / "lib").mkdir(parents=True)
    for name in ("liba.so.1", "libb.so.2"):
        (root / "host" / "lib" / name).touch()
    offer_libraries(root, settings=settings, known={"liba.so.1": "/lib/liba.so.1", "libb.so.2": "/lib/libb.so.2"})
    assert not settings.exists()
    offer_libraries(root, settings=settings, known={"liba.so.1": "/lib/liba.so.1"})
    assert settings.read_text() == f"{root}/host/lacking\n"
    assert [path.name for path in (root / "host" / "lacking").iterdir()] == ["libb.so.2"]


def test_the_bundle_is_found_on_the_command_line_before_it_is_parsed():
    assert named_bundle(["up", "--from-bundle", "/b", "--audit"]) == Path("/b")
    assert named_bundle(["up", "--from-bundle=/b"]) == Path("/b")
    assert named_bundle(["up", "--from-bundle"]) is None
    assert named_bundle(["status"]) is None
