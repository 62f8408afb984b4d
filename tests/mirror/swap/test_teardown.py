"""What is left of the stock operator's objects goes with the test that made them: nothing hangs, and all is told."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e import stock_objects
from tests.kubectl import Kubectl
from tests.mirror.test_served import a_cluster, a_group

pytestmark = pytest.mark.api

FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"


@pytest.fixture
def namespace(in_namespace: Kubectl, definitions: None) -> Iterator[Kubectl]:
    yield in_namespace
    for kind in ("daskcluster/demo", "daskworkergroup/demo-more"):
        in_namespace.attempt("patch", kind, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')


def make(kubectl: Kubectl, *finalizers: str) -> None:
    """A cluster and a group that these finalizers hold."""
    for body in (a_cluster(), a_group()):
        body["metadata"]["finalizers"] = list(finalizers)
        kubectl("create", "-f", "-", stdin=json.dumps(body))


def test_the_finalizers_of_an_operator_that_has_ended_hold_nothing(namespace: Kubectl) -> None:
    make(namespace, FINALIZER)
    stock_objects.remove(namespace)
    assert namespace("get", stock_objects.KINDS, "-o", "name").stdout == ""


def test_what_somebody_else_holds_is_told_at_the_deadline(namespace: Kubectl) -> None:
    make(namespace, FINALIZER, "example.com/held")
    with pytest.raises(AssertionError, match=r"not within 2 s: the stock .* are gone.*example\.com/held"):
        stock_objects.remove(namespace, seconds=2)
