"""A user who follows docs/tasks.md step by step, in a directory and a namespace of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


from tests.docs.pages import ROOT
from tests.docs.recipes import Step, Task
from tests.e2e.kubeconfigs import write_kubeconfig
from tests.e2e.space import Space

_STEP_SECONDS = 150
_CHECKOUT = ("charts", "examples", "images")  # what commands of the page name


@dataclass(frozen=True)
class Newcomer:
    """`words`: what the page says -> what it is here, for images and the namespace."""

    space: Space
    directory: Path
    words: Mapping[str, str]

    @classmethod
    def arrive(cls, space: Space, directory: Path, words: Mapping[str, str]) -> Newcomer:
        """With a checkout, and a kubeconfig whose namespace is the room's."""
        for name in _CHECKOUT:
            (directory / name).symlink_to(ROOT / name)
        newcomer = cls(space, directory, words)
        newcomer.write_kubeconfig(newcomer.kubeconfig)
        return newcomer

    @property
    def kubeconfig(self) -> Path:
        """The newcomer's own."""
        return self.directory / "kubeconfig"

    def write_kubeconfig(self, path: Path, *, token: str = "") -> None:
        """An administrator's, in this namespace; or somebody's with a token."""
        write_kubeconfig(self.space, path, token=token)

    def follow(self, task: Task) -> str:
        """Every step that can be done as it is written; what they all printed."""
        return "".join(self.do(step) for step in task.steps if not step.instead)

    def do(self, step: Step, *, kubeconfig: Path | None = None) -> str:
        """One step: a file is written, a program and commands are run; what was printed must be what the page says."""
        text = self.here(step.text)
        if step.file:
            (self.directory / step.file).write_text(text)
        if step.language == "sh":
            command = ["bash", "-euo", "pipefail", "-c", text]
        elif step.language == "python":
            command = [sys.executable, step.file]
        else:
            return ""
        printed = self.run(command, kubeconfig=kubeconfig)
        for line in step.prints:
            pattern = ".*".join(re.escape(part) for part in self.here(line).split("..."))
            assert re.search(pattern, printed), f"the page says that this prints {line!r}:\n{text}\nIt said:\n{printed}"
        return printed

    def run(self, command: list[str], *, kubeconfig: Path | None = None) -> str:
        """What a command writes, to standard output and standard error; it must succeed."""
        programs = (sys.executable, self.space.kubectl.path, self.space.platform.provider.helm)
        environment = {
            "PATH": os.pathsep.join([*(str(Path(program).parent) for program in programs), "/usr/bin", "/bin"]),
            "HOME": str(self.directory),
            "KUBECONFIG": str(kubeconfig or self.kubeconfig),
            "LANG": "C.UTF-8",
        }
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_STEP_SECONDS,
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{self.space.show()}"
        return done.stdout

    def here(self, text: str) -> str:
        """The page's words as they are here."""
        for word, own in self.words.items():
            text = text.replace(word, own)
        return text
