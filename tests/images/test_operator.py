"""What is measured of the operator as a process of this machine is what the image runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from local.operator.process import AS_IN_THE_IMAGE, as_in_the_image
from tests.conftest import ROOT

_IMPORTED = """\
import json, sys
from importlib.metadata import packages_distributions
import gpudask.__main__
owners = packages_distributions()
print(json.dumps(sorted({owner for name in sys.modules for owner in owners.get(name, ())})))
"""


def test_a_process_of_this_machine_has_the_allocator_of_the_image():
    text = (ROOT / "images" / "operator" / "Containerfile").read_text()
    (stage,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    environment = dict(pair.split("=", 1) for pair in stage.replace("\\\n", " ").split())
    assert environment["PYTHONMALLOC"] == "malloc"
    assert AS_IN_THE_IMAGE.items() <= environment.items()


@pytest.mark.program
def test_a_process_of_this_machine_imports_what_the_image_has_and_nothing_else():
    command = [sys.executable, "-c", _IMPORTED]
    done = subprocess.run(command, env=as_in_the_image(os.environ), check=True, capture_output=True)
    imported = {name.lower().replace("_", "-") for name in json.loads(done.stdout)}
    locked = re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements" / "operator.lock").read_text(), re.MULTILINE)
    assert "kopf" in imported
    started_by_python_itself = {"setuptools"}  # a .pth file of it, as in every environment that pip has made
    assert imported <= {*locked, "gpudask"} | started_by_python_itself
