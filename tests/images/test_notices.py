"""The notices of what images and bundles carry: each package with its licence, and the text of it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from images.notices import notices, packages
from local.bundle.packing.notices import notices_item
from local.bundle.packing.writing import Item
from local.host.progress import QUIET
from local.images.build import IMAGE_NAMES
from local.programs.binaries import HELM, ensure_binary
from local.programs.toolchain import find_go
from tests.conftest import ROOT

MIT = "Permission is hereby granted, free of charge"


def a_wheel(folder: Path, name: str, *head: str, licence: str = MIT) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        lines = ["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *head, "", "What it is."]
        archive.writestr(f"{name}-1.0.dist-info/METADATA", "\n".join(lines))
        archive.writestr(f"{name}-1.0.dist-info/licenses/LICENSE.txt", licence)
        archive.writestr(f"{name}/LICENSE", "not the package's own")
    return path


def test_a_package_is_named_with_its_licence_wherever_its_metadata_has_it(tmp_path: Path):
    a_wheel(tmp_path, "one", "License-Expression: MIT", "Home-page: https://one.example")
    a_wheel(tmp_path, "two", "Classifier: License :: OSI Approved :: BSD License", licence="Redistribution and use")
    a_wheel(tmp_path, "three", "License: Apache 2.0\n        and the whole of it")
    text = notices(packages([tmp_path]))
    for line in ("one 1.0: MIT (https://one.example)", "two 1.0: BSD License", "three 1.0: Apache 2.0"):
        assert line in text.splitlines()
    assert text.count(MIT) == 1, "a text that two share stands there once"
    assert "one 1.0: licenses/LICENSE.txt\nthree 1.0: licenses/LICENSE.txt" in text
    assert "not the package's own" not in text


def test_of_an_environment_nothing_is_left_out():
    site = Path(metadata.distribution("distributed").locate_file("")).resolve()
    script = ROOT / "images" / "notices.py"
    done = subprocess.run([sys.executable, "-I", str(script), str(site)], capture_output=True, text=True, check=True)
    listed = {line.partition(" ")[0].lower() for line in done.stdout.split("=" * 100)[0].splitlines() if ": " in line}
    there = {item.metadata["Name"].lower() for item in metadata.distributions(path=[str(site)])}
    assert there <= listed
    assert "distributed" in listed


def test_a_place_that_is_none_is_named(tmp_path: Path):
    with pytest.raises(SystemExit, match="is no directory"):
        packages([tmp_path / "missing"])


@pytest.mark.parametrize("name", IMAGE_NAMES)
def test_each_image_has_our_licence_and_the_notices_made_from_what_is_in_it(name: str):
    text = (ROOT / "images" / name / "Containerfile").read_text()
    made = text.split("AS licences\n")[1].split("\nFROM")[0]
    assert "COPY LICENSE images/notices.py /licenses/" in made
    assert "> /licenses/THIRD_PARTY_NOTICES" in made
    assert "COPY --from=licences /licenses /licenses" in text.rpartition("\nFROM")[2]
    ignored = (ROOT / "images" / name / "Containerfile.dockerignore").read_text().splitlines()
    assert {"!LICENSE", "!images/notices.py"} <= set(ignored)


@pytest.mark.api  # it takes a Go binary, which those tests have
def test_a_bundles_notices_have_its_wheels_go_modules_and_debian_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    wheel, helm = a_wheel(tmp_path, "one", "License-Expression: MIT"), ensure_binary(HELM, QUIET)
    items = [
        Item("wheels/x/one.whl", "wheels-x", wheel),
        Item("bin/x/helm", "helm", helm),
        Item("host/bin/ls", "host", Path("/bin/ls").resolve()),
    ]
    go = find_go(QUIET).command
    monkeypatch.setenv("GPUDASK_CACHE_DIR", str(tmp_path))
    item = notices_item(items, go)
    assert item.source is not None
    text = item.source.read_text()
    for words in ("one 1.0: MIT", "Go module helm.sh/helm/v4 v4", "Go module k8s.io/api v", "Debian package coreutils"):
        assert words in text, words
