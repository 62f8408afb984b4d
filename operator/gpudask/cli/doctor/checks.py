"""All checks, in the order in which a person would go through them; here those of the server and of the user. Pure."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import chain

from gpudask.cli.doctor import clusters, gpus, installation
from gpudask.cli.doctor.facts import Facts, Finding, Level
from gpudask.cli.doctor.rights import USER

_MINOR_AT_LEAST = 29


def judge(facts: Facts, version: str) -> list[Finding]:
    """All findings; `version` is this program's."""
    found = (
        [Finding("gpudask", Level.OK, f"this program is version {version}", version=version)],
        [replace(finding, version=str((facts.version or {}).get("gitVersion", ""))) for finding in _server(facts)],
        installation.definition(facts),
        installation.jobs(facts),
        installation.records(facts),
        installation.deployments(facts, version),
        installation.rights(facts),
        _own_rights(facts),
        installation.stock_operator(facts),
        installation.mirror(facts),
        gpus.nodes(facts),
        clusters.images(facts),
        clusters.clusters(facts),
        clusters.pools(facts),
    )
    return list(chain.from_iterable(found))


def unreachable(reason: str) -> list[Finding]:
    """The only finding where there is no server to ask."""
    mend = "see what kubectl version says; --kubeconfig and --context choose another server"
    return [Finding("API server", Level.PROBLEM, reason, mend)]


def _server(facts: Facts) -> list[Finding]:
    version = facts.version or {}
    text = f"Kubernetes {version.get('gitVersion', 'of unknown version')} answers"
    minor = "".join(letter for letter in str(version.get("minor", "")) if letter.isdigit())
    if minor and int(minor) < _MINOR_AT_LEAST:
        mend = f"upgrade Kubernetes to 1.{_MINOR_AT_LEAST} or newer"
        return [Finding("API server", Level.PROBLEM, f"{text}; 1.{_MINOR_AT_LEAST} is the oldest that works", mend)]
    return [Finding("API server", Level.OK, text)]


def _own_rights(facts: Facts) -> list[Finding]:
    check = "your rights"
    if facts.may_not is None:
        return [facts.unread(check, "may_not")]
    if not facts.may_not:
        return [Finding(check, Level.OK, f"you may do all in namespace {facts.namespace}")]
    missing = ", ".join(f"{right} (for gpudask {USER[right]})" for right in facts.may_not)
    text = f"in namespace {facts.namespace} you may not: {missing}"
    return [Finding(check, Level.WARNING, text, f"let an administrator type: {_binding(facts)}")]


def _binding(facts: Facts) -> str:
    """The command that gives the user the role edit, to which the chart adds what is ours."""
    prefix = "system:serviceaccount:"
    who = f"--user={shlex.quote(facts.user or 'YOU')}"
    if facts.user.startswith(prefix):
        who = f"--serviceaccount={facts.user.removeprefix(prefix)}"
    return f"kubectl create rolebinding gpudask-edit -n {facts.namespace} --clusterrole=edit {who}"
