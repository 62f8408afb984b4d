"""The image that all images begin with."""

from __future__ import annotations

import re

from tests.conftest import ROOT

_DEFAULT = re.compile(r"^ARG BASE=(.*)$", re.MULTILINE)


def test_all_begin_with_one_image_named_by_its_digest():
    files = sorted(ROOT.glob("images/*/Containerfile"))
    bases = {base for path in files for base in _DEFAULT.findall(path.read_text())}
    assert len(files) > 3
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", bases.pop())
