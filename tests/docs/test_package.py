"""The package as a registry would have it: what it says of itself, what is in it, and pins that are the images'."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from gpudask.kubecluster.scheduler.versions import COMPARED
from tests.conftest import ROOT
from tests.docs.pages import pages

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
_LINK = re.compile(r"\]\(([^)]+)\)")
_INSTALL = re.compile(r"pip install (?:--\S+ )*'\.\[([\w,]+)\]'")


def locked(name: str) -> dict[str, str]:
    """What a lock file pins."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist and the wheel."""
    place = tmp_path_factory.mktemp("dist")
    code = f"import hatchling.build as b; b.build_sdist({str(place)!r}); b.build_wheel({str(place)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    return place


def test_the_extra_of_the_images_versions_is_what_the_images_have():
    lock = locked("dask")
    pinned = {Requirement(text).name: str(Requirement(text).specifier) for text in EXTRAS["image"]}
    assert pinned == {name: f"=={lock[name]}" for name in pinned}
    assert set(pinned) == set(COMPARED) - {"python"}, "what KubeCluster compares, it has the same of"


def test_each_install_line_of_the_pages_has_the_images_versions():
    texts = {path: path.read_text() for path in [*pages(), ROOT / "examples" / "quickstart.ipynb"]}
    found = [(str(path), extras) for path, text in texts.items() for extras in _INSTALL.findall(text)]
    assert len(found) >= 5
    for path, extras in found:
        assert {"image", "examples"} & set(extras.split(",")), (
            f"{path}: '.[{extras}]' takes another Dask than the images"
        )
        assert set(extras.split(",")) <= set(EXTRAS), path


def test_what_is_made_of_private_parts_of_dask_has_an_upper_bound_that_was_tried():
    (distributed,) = [Requirement(text) for text in EXTRAS["client"] if Requirement(text).name == "distributed"]
    tried = re.findall(r"client-([\d.]+)\.in", " ".join(path.name for path in (ROOT / "requirements").iterdir()))
    allowed = SpecifierSet(str(distributed.specifier))
    newest = max(tried, key=lambda text: [int(part) for part in text.split(".")])
    year, month = (int(part) for part in newest.split(".")[:2])
    assert allowed.contains(newest)
    assert not allowed.contains(f"{year}.{month + 1}.0"), "nobody has tried it"


def test_the_package_says_what_it_is(built: Path):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith("/METADATA")]
        head = HeaderParser().parsestr(archive.read(metadata).decode())
    assert head["License-Expression"] == "Apache-2.0"
    assert head["Author"] or head["Author-email"]
    assert head["Keywords"]
    classifiers = head.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    assert f"Programming Language :: Python :: {PROJECT['requires-python'].removeprefix('>=')}" in classifiers
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.partition("/")[0] for name in names} == {"gpudask", f"gpudask-{PROJECT['version']}.dist-info"}


def test_the_packages_page_has_no_link_into_a_checkout():
    text = (ROOT / PROJECT["readme"]).read_text()
    assert all(target.startswith("https://") for target in _LINK.findall(text))


def test_the_sdist_is_the_package_and_nothing_else(built: Path):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    top = {name for name in names if not name.startswith("operator/gpudask/")}
    assert top <= {"PKG-INFO", "pyproject.toml", "LICENSE", "CHANGELOG.md", "docs/package.md", ".gitignore"}
    assert "operator/gpudask/py.typed" in names
    assert sdist.stat().st_size < 1 << 20
