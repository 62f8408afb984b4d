"""What the programs of the local Kubernetes share is compiled once: half of the first `make demo` is Go's compiler."""

from __future__ import annotations

import re

import pytest

from local.layout import REPOSITORY

_MODULES = REPOSITORY / "local" / "programs" / "go"
_REQUIRED = re.compile(r"^(?:require )?\s*(?P<module>\S+\.\S+) (?P<version>v\S+)(?: // indirect)?$", re.MULTILINE)
_REPLACED = re.compile(r"^(?:replace )?\s*(?P<module>\S+) => (?P<by>\S+) (?P<version>v\S+)$", re.MULTILINE)


def versions(program: str) -> dict[str, str]:
    """What a program is built with: the version of each module that its go.mod names."""
    text = (_MODULES / program / "go.mod").read_text()
    required = {found["module"]: found["version"] for found in _REQUIRED.finditer(text)}
    replaced = {found["module"]: found["version"] for found in _REPLACED.finditer(text)}
    return {module: replaced.get(module, version) for module, version in required.items()}


@pytest.mark.parametrize("program", ["helm", "coredns", "kube-router"])
def test_a_program_is_built_with_the_versions_of_kubernetes(program: str):
    kubernetes, theirs = versions("kubernetes"), versions(program)
    shared = theirs.keys() & kubernetes.keys()
    assert "k8s.io/client-go" in shared
    other = {module: kubernetes[module] for module in shared if theirs[module] != kubernetes[module]}
    assert other == {}, f"in {program}/go.mod, require or replace these at Kubernetes' versions, and tidy it"
