"""What the pages promise holds: manifests, programs, links, commands."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudask.api.resource import parse
from gpudask.api.spec import Spec
from tests.docs.pages import ROOT, Snippet, manifests, pages, prose, snippets
from tests.kubectl import Kubectl

MANIFESTS = manifests()
PROGRAMS = snippets("python")
SHELL = snippets("sh")
PAGES = pages()
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(?P<title>.+)$", re.MULTILINE)
# `make X` in code: alone in backticks, or at the start of a shell line.
_MAKE = re.compile(r"(?:`|^)make ((?:[a-z][a-z0-9-]*)+)", re.MULTILINE)
_TARGET = re.compile(r"^([a-z][a-z0-9-]*):", re.MULTILINE)


def of_page(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = [match["title"].lower() for match in _HEADING.finditer(prose(page))]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


@cache
def known_fields() -> set[str]:
    """Those of a spec."""
    return set(Spec.model_json_schema(by_alias=True)["properties"])


def test_there_is_something_to_check():
    assert len(MANIFESTS) > 8
    assert PROGRAMS
    assert ROOT / "README.md" in PAGES


@pytest.mark.parametrize(
    ("snippet", "body"), MANIFESTS, ids=lambda value: str(value) if isinstance(value, Snippet) else ""
)
def test_a_manifest_in_a_page_is_valid_and_has_no_unknown_field(snippet: Snippet, body: dict[str, Any]):
    body = {**body, "metadata": {"namespace": "default", "uid": "uid", **body["metadata"]}}
    cluster = parse(body)
    assert set(body["spec"]) <= known_fields(), f"{snippet}: unknown fields"
    assert [pool.name for pool in cluster.spec.pools] == [pool["name"] for pool in body["spec"]["pools"]]


@pytest.mark.api
@pytest.mark.parametrize(
    ("snippet", "body"), MANIFESTS, ids=lambda value: str(value) if isinstance(value, Snippet) else ""
)
def test_a_manifest_in_a_page_is_accepted_by_the_api_server(snippet: Snippet, body: dict[str, Any], with_crd: Kubectl):
    text = yaml.safe_dump(body)
    answer = with_crd("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    assert "created" in answer.stdout, f"{snippet}: {answer.stdout}{answer.stderr}"


@pytest.mark.parametrize("snippet", PROGRAMS, ids=str)
def test_a_program_in_a_page_compiles(snippet: Snippet):
    compile(snippet.text, str(snippet), "exec")


@pytest.mark.parametrize("snippet", snippets("yaml"), ids=str)
def test_yaml_in_a_page_can_be_read(snippet: Snippet):
    list(yaml.safe_load_all(snippet.text))


@pytest.mark.parametrize("page", PAGES, ids=of_page)
def test_links_of_a_page_lead_somewhere(page: Path):
    broken = []
    for match in _LINK.finditer(prose(page)):
        target = match["target"]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        goal = (page.parent / path).resolve() if path else page
        if not goal.exists() or (anchor and goal.suffix == ".md" and anchor not in anchors(goal)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=of_page)
def test_make_targets_that_a_page_names_exist(page: Path):
    targets = set(_TARGET.findall((ROOT / "Makefile").read_text()))
    text = prose(page) + "".join(s.text for s in SHELL if s.page == of_page(page))
    assert set(_MAKE.findall(text)) <= targets


def test_every_decision_is_in_the_index():
    folder = ROOT / "docs" / "adr"
    listed = set(re.findall(r"\]\((\d{4}-[a-z0-9-]+\.md)\)", (folder / "README.md").read_text()))
    assert listed == {path.name for path in folder.glob("[0-9]*.md")}


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 100
