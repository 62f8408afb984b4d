"""Running the command line in a test: its exit code, its results, and what it said besides."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gpudask.cli.commands import wait
from gpudask.cli.main import app


def invoke(*arguments: str, stdin: str | None = None, env: dict[str, str] | None = None) -> Result:
    """The outcome; an error that the command line does not know is raised."""
    result = CliRunner().invoke(app, list(arguments), input=stdin, env=env, prog_name="gpudask")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def over_once_said(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """Let the time of a wait be over once it has said these words: a busy machine may be late with the first answer."""
    report = wait._Waiting._report
    limits: list[asyncio.Timeout] = []

    class Asyncio:
        """As the module, but for the wait's own time limit."""

        def __getattr__(self, name: str) -> Any:
            return getattr(asyncio, name)

        def timeout(self, _seconds: float) -> asyncio.Timeout:
            limits.append(asyncio.timeout(120))
            return limits[-1]

    def reported(self: wait._Waiting, why: str) -> None:
        report(self, why)
        if words in why:
            limits[-1].reschedule(asyncio.get_running_loop().time())

    monkeypatch.setattr(wait, "asyncio", Asyncio())
    monkeypatch.setattr(wait._Waiting, "_report", reported)
