"""Completion in kubectl, after TAB on `kubectl gpudask`: `kubectl_complete-gpudask` (kubectl 1.26 and newer).

kubectl hands over the words after the plugin's name, the last one unfinished or empty, and reads candidates, a line
each, then `:` and a number that says what the shell does with them, in Cobra's protocol.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys

from gpudask.cli import completion
from gpudask.cli.main import make_app

_FILES, _NO_SPACE, _NO_FILES = 0, 2, 4  # Cobra's ShellCompDirective: Default, NoSpace, NoFileComp


def main() -> None:
    """Answer kubectl."""
    completion.answer_alone(lambda: sys.stdout.write(answer(candidates(sys.argv[1:]))))


def candidates(words: list[str]) -> list[str]:
    """The candidates for the last of `words`, as the completion of the shells has it."""
    unfinished = words or [""]
    os.environ[completion.VARIABLE] = "complete_bash"
    os.environ["COMP_WORDS"] = shlex.join(["gpudask", *unfinished])
    os.environ["COMP_CWORD"] = str(len(unfinished))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        make_app()(args=[], prog_name="gpudask")
    return [line for line in printed.getvalue().splitlines() if line]


def answer(found: list[str]) -> str:
    """`found` in Cobra's protocol. Where nothing is known the shell offers files, for `-f` and FILE."""
    directive = _NO_FILES if found else _FILES
    if found and all(item.endswith("=") for item in found):
        directive |= _NO_SPACE  # the number follows at once: gpu=4
    return "".join(f"{line}\n" for line in [*found, f":{directive}"])
