"""What is measured of the operator as a process of this machine is what the image runs."""

from __future__ import annotations

import re

from local.operator.process import AS_IN_THE_IMAGE
from tests.conftest import ROOT


def test_a_process_of_this_machine_has_the_allocator_of_the_image():
    text = (ROOT / "images" / "operator" / "Containerfile").read_text()
    (stage,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    environment = dict(pair.split("=", 1) for pair in stage.replace("\\\n", " ").split())
    assert environment["PYTHONMALLOC"] == "malloc"
    assert AS_IN_THE_IMAGE.items() <= environment.items()
