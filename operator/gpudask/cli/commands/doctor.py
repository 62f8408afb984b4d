"""`gpudask doctor`: checks of what the operator needs of a Kubernetes cluster, and how to mend what it lacks."""

from __future__ import annotations

from enum import StrEnum
from importlib import metadata
from typing import Annotated

import typer

from gpudask.cli import api_server, output
from gpudask.cli.doctor import checks
from gpudask.cli.doctor.facts import Finding, Level
from gpudask.cli.doctor.reading import read_facts
from gpudask.cli.exits import CliError, Exit
from gpudask.cli.options import Context, Kubeconfig, Namespace
from gpudask.kubecluster.errors import KubeClusterError


class Form(StrEnum):
    """The formats for programs: a list of findings."""

    JSON = "json"
    YAML = "yaml"


_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.UNKNOWN: "dim", Level.PROBLEM: "red"}


def doctor_command(
    *,
    output_form: Annotated[Form | None, typer.Option("--output", "-o", help="For programs: a list.")] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Check what the operator needs, and say how to mend it.

    It looks at the API server, the resource definition, the operator and its pods, rights, the stock operator and the
    mirror, GPU nodes and their device plugin, clusters and pools. What it may not read it says.

    Only a problem changes the exit code.

    \b
    Example:
      gpudask doctor
      gpudask doctor -n team-a -o json
    """  # noqa: D301
    findings = _findings(api_server.Target(kubeconfig, context, namespace))
    if output_form is not None:
        typer.echo(output.as_text([finding.as_json() for finding in findings], output_form), nl=False)
    else:
        _print(findings)
    problems = sum(finding.level == Level.PROBLEM for finding in findings)
    if problems:
        raise CliError(f"{problems} problems found" if problems > 1 else "1 problem found", Exit.PROBLEM_FOUND)


def _findings(target: api_server.Target) -> list[Finding]:
    try:
        facts = api_server.run(target, read_facts)
    except (CliError, KubeClusterError) as error:
        return checks.unreachable(str(error))
    return checks.judge(facts, metadata.version("gpudask"))


def _print(findings: list[Finding]) -> None:
    from rich.text import Text  # noqa: PLC0415 - programs' output does without

    console = output.console()
    for finding in findings:
        line = Text(f"{finding.level.value:8}", style=_STYLES[finding.level])
        line.append(f" {finding.check}: {finding.text}", style="default")
        console.print(line)
        if finding.mend:
            console.print(Text(f"         -> {finding.mend}"))
