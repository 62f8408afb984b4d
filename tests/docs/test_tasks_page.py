"""docs/tasks.md can be followed by a program: what needs no cluster of it. tests/e2e/test_tasks.py follows it."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib

import pytest
import yaml

from tests.docs.pages import ROOT
from tests.docs.recipes import PAGE, Step, tasks

TASKS = tasks()
STEPS = [pytest.param(step, id=f"{task.number}-{n}") for task in TASKS.values() for n, step in enumerate(task.steps)]


def test_there_are_ten_tasks_with_something_to_do():
    assert list(TASKS) == list(range(1, 11))
    assert all(task.steps for task in TASKS.values())


@pytest.mark.parametrize("step", STEPS)
def test_a_block_is_of_a_kind_that_the_tests_follow_and_files_have_names(step: Step):
    assert step.language in ("sh", "python", "yaml", "dockerfile")
    assert bool(step.file) == (step.language != "sh"), "the first line of a file is its name in a comment"


@pytest.mark.parametrize("step", [step for step in STEPS if step.values[0].language == "sh"])
def test_commands_can_be_read_by_the_shell(step: Step):
    done = subprocess.run(["bash", "-n"], input=step.text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_a_test_does_instead_follows_the_block_that_it_stands_for():
    followed = sum(bool(step.instead) for task in TASKS.values() for step in task.steps)
    assert followed == PAGE.read_text().count("*Tests do instead:*")


def test_the_extra_that_is_installed_brings_the_commands():
    (command,) = [step.text for step in TASKS[1].steps if step.text.startswith("pip install")]
    extras = re.search(r"'\.\[(?P<names>[\w,]+)\]'", command)
    assert extras
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras["names"].split(",")) <= set(project["optional-dependencies"])
    assert {"gpudask", "kubectl-gpudask"} <= set(project["scripts"])


def test_the_image_with_packages_runs_as_the_user_of_ours():
    users = re.findall(r"^USER .+$", (ROOT / "images" / "dask" / "Containerfile").read_text(), re.MULTILINE)
    lines = TASKS[4].step("Dockerfile").text.splitlines()
    assert lines[-1] == users[-1]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert lines[1].split(":")[-1] == version, "it begins with this version's image"


def test_a_build_argument_of_the_page_is_one_of_the_containerfile():
    (command,) = [step.text for step in TASKS[3].steps if step.text.startswith("docker build")]
    words = shlex.split(command.splitlines()[0])
    containerfile = (ROOT / words[words.index("-f") + 1]).read_text()
    argument = words[words.index("--build-arg") + 1].partition("=")[0]
    assert re.search(rf"^ARG {argument}\b", containerfile, re.MULTILINE)


def test_the_colleagues_rights_are_among_those_that_the_guide_lists():
    guide = (ROOT / "docs" / "kubecluster.md").read_text()
    (listed,) = re.findall(r"^```yaml\n(apiVersion: rbac.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    role, _ = yaml.safe_load_all(TASKS[8].step("share.yaml").text)
    assert rights(role) <= rights(yaml.safe_load(listed))


def rights(role: dict) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
