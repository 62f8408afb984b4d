"""A program with another release of distributed than the scheduler's, which is a real one in this process."""

import os
import re
import tomllib

import distributed
import pytest

from local.layout import REPOSITORY
from tests.kubecluster import fake_server as fake
from tests.releases.environment import COMPUTED, NEWEST, OLDEST, TOO_OLD, requirements_of, run_program


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
def test_a_program_with_another_release_works_and_is_told_once_what_differs(demo: fake.FakeServer, release: str):
    seen = run_program(release, os.environ["KUBECONFIG"], "demo", "lab")

    (warning,) = seen.pop("warnings")
    assert row(release) in warning
    assert "image i" in warning
    assert seen == {"distributed": release} | COMPUTED


def test_a_release_whose_graphs_cannot_be_read_is_refused_with_all_three_and_the_image(demo: fake.FakeServer):
    seen = run_program(TOO_OLD, os.environ["KUBECONFIG"], "demo", "lab")

    assert "graphs" in seen["error"]
    assert row(TOO_OLD) in seen["error"]
    assert "Run this program in image i" in seen["error"]


def test_the_oldest_environment_has_the_oldest_that_the_package_asks_for():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    asked = {*project["dependencies"], *project["optional-dependencies"]["client"]}

    pinned = re.findall(r"^([a-z0-9-]+)==([0-9.]+)$", requirements_of(OLDEST).read_text(), re.MULTILINE)

    least = {text.partition(",")[0] for text in asked}
    assert least == {f"{name}>={bound(version)}" for name, version in pinned if name != "dask"}


def row(release: str) -> str:
    theirs = distributed.__version__
    return f"distributed: client {release}, scheduler {theirs}, workers {theirs}"


def bound(version: str) -> str:
    """As people write it: without the zeros at the end."""
    return re.sub(r"(\.0)+$", "", version)
