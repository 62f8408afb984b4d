"""The rights that docs/kubecluster.md tells users to ask for."""

from __future__ import annotations

from typing import Any

import yaml

from tests.docs.pages import snippets

_PAGE = "docs/kubecluster.md"


def documented_rules() -> list[dict[str, Any]]:
    """The rules of the page's Role for somebody who creates clusters."""
    documents = [yaml.safe_load(each.text) for each in snippets("yaml") if each.page == _PAGE]
    (role,) = [document for document in documents if isinstance(document, dict) and document.get("kind") == "Role"]
    return list(role["rules"])
