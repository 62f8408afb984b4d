"""The pages that people read, and the pieces of code in them."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpudask.api.resource import KIND

ROOT = Path(__file__).resolve().parents[2]
# Matches a fenced block, also one that is indented; the fence's first word is its language.
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_HERE_DOCUMENT = re.compile(r"<<'YAML'\n(?P<text>.*?)^YAML$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A piece of code in a page, with the line at which it begins."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Every Markdown file of the project: tracked, or new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in sorted(listed.splitlines()) if (ROOT / name).exists()]


def snippets(*languages: str) -> list[Snippet]:
    """The fenced blocks of all pages in these languages."""
    found = []
    for page in pages():
        text = page.read_text()
        for match in BLOCK.finditer(text):
            if match["language"] in languages:
                line = text.count("\n", 0, match.start()) + 1
                found.append(Snippet(str(page.relative_to(ROOT)), line, match["language"], match["text"]))
    return found


def manifests() -> list[tuple[Snippet, dict[str, Any]]]:
    """The GpuDaskClusters in YAML blocks, and in here-documents of shell blocks."""
    texts = [(snippet, snippet.text) for snippet in snippets("yaml")]
    texts += [(s, match["text"]) for s in snippets("sh") for match in _HERE_DOCUMENT.finditer(s.text)]
    documents = [(snippet, document) for snippet, text in texts for document in yaml.safe_load_all(text)]
    return [(snippet, body) for snippet, body in documents if isinstance(body, dict) and body.get("kind") == KIND]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return BLOCK.sub("", page.read_text())
