"""docs/gitops.md: Argo CD's health check is run on statuses as the operator writes them."""

from __future__ import annotations

import re
from typing import Any

import lupa
import pytest

from gpudask.api import Json
from tests.docs.pages import ROOT, snippets

PAGE = "docs/gitops.md"


@pytest.fixture(scope="module")
def health() -> Any:
    """The page's script, as Argo CD calls it: with `obj`."""
    (script,) = [snippet.text for snippet in snippets("lua") if snippet.page == PAGE]
    lua = lupa.LuaRuntime()
    function = lua.eval(f"function(obj) {script} end")

    def run(obj: Json) -> tuple[str, str]:
        found = function(lua.table_from(obj, recursive=True))
        return found["status"], found["message"]

    return run


def body(phase: str, *conditions: tuple[str, str, str, str], observed: int = 2) -> Json:
    listed = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, status, reason, message in conditions
    ]
    status = {"phase": phase, "observedGeneration": observed, "conditions": listed}
    return {"metadata": {"generation": 2}, "spec": {}, "status": status}


READY = ("Ready", "True", "AllReady", "all pods are ready")
PENDING = ("Ready", "False", "PodsMissing", "pool cpu: 0 of 1 pods are ready")


@pytest.mark.parametrize(
    ("obj", "status", "message"),
    [
        ({"metadata": {"generation": 1}, "spec": {}}, "Progressing", "the operator has not looked at it yet"),
        (body("Running", READY, observed=1), "Progressing", "the operator has not looked at it yet"),
        (body("Running", READY), "Healthy", "AllReady: all pods are ready"),
        (body("Pending", PENDING), "Progressing", "PodsMissing: pool cpu: 0 of 1 pods are ready"),
        (body("Pending"), "Progressing", "the operator has not looked at it yet"),
        (
            body("Invalid", ("Accepted", "False", "Invalid", "spec.image: required here"), PENDING),
            "Degraded",
            "Invalid: spec.image: required here",
        ),
        (
            body("Degraded", READY, ("Degraded", "True", "QuotaExceeded", "exceeded quota")),
            "Degraded",
            "QuotaExceeded: exceeded quota",
        ),
        (body("Suspended", ("Ready", "False", "Suspended", "")), "Suspended", "suspended, as the spec asks"),
    ],
)
def test_argo_cds_health_check_tells_what_the_status_says(health: Any, obj: Json, status: str, message: str):
    assert health(obj) == (status, message)


def test_where_the_chart_cannot_look_the_page_says_what_to_set():
    text = re.sub(r"\s+", " ", (ROOT / PAGE).read_text())
    assert "set `mirror.definitions=false` there" in text  # tests/chart/test_mirror.py: it then brings none
    assert "lookup" in (ROOT / "charts" / "gpudask" / "templates" / "_checks.tpl").read_text()
