"""`make images`: what it builds, pushes and prints; the version stands in pyproject.toml alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from images import publish
from local.images.build import IMAGE_NAMES
from tests.conftest import ROOT
from tests.make_variables import forget_make

VERSION = publish.version()


def published(engine: str = "docker", tag: str = VERSION, **options: Sequence[str]) -> tuple[list[str], str]:
    """The commands that it runs, and what it prints."""
    commands: list[str] = []
    printed = publish.publish("registry.example/team", tag, engine, lambda c: commands.append(" ".join(c)), **options)
    return commands, printed


def test_all_images_are_built_and_only_then_pushed_with_the_versions_tag():
    commands, _ = published()
    labels = f"--build-arg=VERSION={VERSION} --build-arg=REVISION=unknown"
    built = [
        f"docker build -f images/{name}/Containerfile {labels} -t registry.example/team/{name}:{VERSION} ."
        for name in IMAGE_NAMES
    ]
    assert commands == [*built, *(f"docker push registry.example/team/{name}:{VERSION}" for name in IMAGE_NAMES)]
    assert publish.IMAGES == IMAGE_NAMES


def test_the_helm_install_that_it_prints_names_what_was_pushed():
    _, printed = published()
    assert printed.splitlines() == [
        "helm install gpudask charts/gpudask -n gpudask-system --create-namespace \\",
        (
            "  --set image.repository=registry.example/team/operator"
            f" --set defaults.image=registry.example/team/dask:{VERSION}"
        ),
    ]
    _, printed = published(tag="mine")
    assert "--set image.tag=mine --set defaults.image=registry.example/team/dask:mine" in printed


def test_buildah_builds_too_and_options_go_where_they_belong():
    commands, _ = published("/usr/bin/buildah", build=["--isolation=chroot"], push=["--tls-verify=false"])
    assert all(" bud " in line and "--isolation=chroot" in line for line in commands[:3])
    assert all("push --tls-verify=false registry" in line for line in commands[3:])


@pytest.mark.parametrize(
    ("registry", "tag", "said"),
    [
        ("https://registry.example", "1", "is no place for images"),
        ("registry.example/team/", "1", "is no place for images"),
        ("registry.example", "a tag", "is no tag"),
    ],
)
def test_what_is_no_registry_or_tag_is_refused_before_anything_is_built(registry: str, tag: str, said: str):
    def run(command: Sequence[str]) -> None:
        raise AssertionError(command)

    with pytest.raises(SystemExit, match=said):
        publish.publish(registry, tag, "docker", run)


def test_the_make_target_says_what_it_wants():
    done = subprocess.run(
        [sys.executable, str(ROOT / "images" / "publish.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "make images REGISTRY=registry.example/team" in done.stderr


def test_the_command_builds_with_the_engine_that_it_is_given(tmp_path: Path):
    engine, log = tmp_path / "docker", tmp_path / "log"
    engine.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    engine.chmod(0o755)
    command = [
        sys.executable,
        str(ROOT / "images" / "publish.py"),
        "--registry",
        "localhost:5000",
        "--engine",
        str(engine),
    ]
    done = subprocess.run([*command, "--tag", "t"], capture_output=True, text=True, check=True)
    assert done.stdout == publish.helm_install("localhost:5000", "t") + "\n"
    lines = log.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["build"] * 3 + ["push"] * 3
    engine.write_text("#!/bin/sh\nexit 3\n")
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "ended with status 3" in failed.stderr
    assert failed.stdout == "", "nothing to install was pushed"


def test_below_another_make_it_prints_the_command_to_install_and_nothing_else():
    environment = os.environ | {"MAKEFLAGS": "w", "MFLAGS": "-w", "MAKELEVEL": "1"}
    forget_make(environment)
    words = ["images", "REGISTRY=localhost:5000", "TAG=t", "ENGINE=true"]
    done = subprocess.run(["make", *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == publish.helm_install("localhost:5000", "t") + "\n"


def test_the_version_stands_in_one_place():
    chart = yaml.safe_load((ROOT / "charts" / "gpudask" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION), "make manifests writes it there"
    assert metadata.version("gpudask") == VERSION, "make setup installs it so"
    for name in IMAGE_NAMES:
        assert "ARG VERSION=unknown" in (ROOT / "images" / name / "Containerfile").read_text()
    pages = [ROOT / "README.md", ROOT / "images" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    named = {tag for page in pages for tag in re.findall(r"me/(?:dask|operator):([0-9][0-9.]*[0-9])", page.read_text())}
    assert named - {"0.2.0"} == {VERSION}, "the pages' images have this version; 0.2.0 is their next one"
