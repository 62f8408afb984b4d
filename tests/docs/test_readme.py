"""The README's commands as far as they can be told without a cluster; tests/e2e/test_readme.py runs them."""

from __future__ import annotations

from images import publish
from tests.docs.pages import BLOCK, ROOT


def test_the_helm_install_of_the_readme_is_what_make_images_prints():
    section = (ROOT / "README.md").read_text().partition("## Install it on your cluster")[2].partition("\n## ")[0]
    build, install, _ = [block["text"] for block in BLOCK.finditer(section) if block["language"] == "sh"]
    registry = build.strip().removeprefix("make images REGISTRY=")
    assert install.startswith(publish.helm_install(registry, publish.version()) + "\n")
