"""The page of the command line, made from its own help.

`python -m gpudask.cli.help_page` prints it; `make generate` writes it to docs/cli.md, and a test fails on drift.
"""

from __future__ import annotations

import sys
from typing import Any

import typer

from gpudask.cli.main import CODES, COMMANDS, load
from gpudask.cli.output import Exit

_WIDTH = 110
_HEAD = """\
<!-- Made by `make generate` from operator/gpudask/cli. Do not edit. -->
# The command line

`pip install '.[cli,image]'` from a checkout gives `gpudask`, and `kubectl gpudask`, which is the same: kubectl finds
`kubectl-gpudask` on PATH. `gpudask --install-completion` teaches the shell to complete commands, clusters and pools.
Where kubectl completes its own commands it completes `kubectl gpudask` too, by asking `kubectl_complete-gpudask` beside
it (kubectl 1.26 and newer). TAB waits 2 seconds for the API server, or as `GPUDASK_COMPLETION_SECONDS` says.

- `--kubeconfig`, `KUBECONFIG` with several files, `--context`, `-n` and `-A` mean what they mean to kubectl.
- Results go to standard output, everything else to standard error, an error as one line. `-o json|yaml|name` is for
  programs, and `-o jsonpath=TEMPLATE`, as kubectl has it.
- Where a name is wanted, `gpudaskcluster.gpudask.dev/demo` is taken too: what `-o name` prints.
- `convert`, `render`, and `create --dry-run` need no Kubernetes.

| exit code | means |
|---|---|
"""


def reference() -> str:
    """The text of docs/cli.md."""
    codes = [f"| {code.value} | {code.meaning} |" for code in Exit]
    sections = [_section(name, load(name)) for name in COMMANDS]
    return _HEAD + "\n".join([*codes, "", *sections]).rstrip("\n") + "\n"


def _section(name: str, command: Any) -> str:
    context = typer.Context(command, info_name=f"gpudask {name}", terminal_width=_WIDTH, max_content_width=_WIDTH)
    command.epilog = None  # the codes stand at the top of the page
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    assert CODES not in text
    return f"## {name}\n```text\n{text}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
