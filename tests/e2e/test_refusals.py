"""Somebody without any rights, who does as each refusal says: applies the rule that it names, and tries again."""

from __future__ import annotations

from gpudask.api import Json

import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from distributed import Client

from gpudask import KubeCluster, KubeClusterError
from tests.docs.rights import documented_rules
from tests.e2e.kubeconfigs import write_kubeconfig
from tests.e2e.manifests import cluster, cpu
from tests.e2e.accounts import account
from tests.e2e.space import Space

_RULE = re.compile(r"Ask for a Role in namespace '(?P<namespace>[^']+)' with the rule (?P<rule>\{.*?\})(?:$|\. )")


def test_each_refusal_names_the_rule_that_is_missing_until_it_works(
    space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    token = space.kubectl("create", "token", account(space, "user", [])).stdout.strip()
    write_kubeconfig(space, tmp_path / "users", token=token)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "users"))
    manifest = cluster("granted", cpu())

    def uses() -> None:
        options = {"shutdown_on_close": False, "quiet": True, "timeout": 60}
        with KubeCluster("granted", custom_cluster_spec=manifest, **options) as found:
            found.scale(1, pool="cpu")
            found.wait_for_workers(1, pool="cpu", timeout=60)
            with Client(found) as client:
                assert client.submit(sum, [1, 2]).result(timeout=120) == 3
            assert "Scheduler" in found.get_logs(), "without a right on pods' logs, what the processes remember"

    rules = asked_for(space, uses)

    def deletes() -> None:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "gpudask"):
            KubeCluster.from_name("granted", shutdown_on_close=True, quiet=True).close()
        for record in caplog.records:
            if record.args and isinstance(record.args, tuple) and isinstance(record.args[0], KubeClusterError):
                raise record.args[0]

    rules = asked_for(space, deletes, granted=rules)
    assert space.get("gdc") == []
    assert flat(rules) <= flat(documented_rules()), "no more than the docs say"


def asked_for(space: Space, use: Callable[[], None], granted: list[Json] | None = None) -> list[Json]:
    """Do as each refusal says, and try again, until `use` works; the rules that it took, those before included."""
    rules = list(granted or [])
    while True:
        try:
            use()
        except KubeClusterError as error:
            rule = missing(error, space.kubectl.namespace)
        else:
            return rules
        assert rule not in rules, f"granted, and asked for again: {rule}"
        rules.append(rule)
        account(space, "user", rules)
        wait_for_right(space, rule)


def missing(error: KubeClusterError, namespace: str) -> Json:
    """The rule that a refusal asks for."""
    asked = _RULE.search(error.next_step)
    if error.status != 403 or asked is None or asked["namespace"] != namespace:
        raise error
    return dict(yaml.safe_load(asked["rule"]))


def wait_for_right(space: Space, rule: Json) -> None:
    """Until the API server acts by the rule."""
    who = f"--as=system:serviceaccount:{space.kubectl.namespace}:user"
    (group,), (asked,) = rule["apiGroups"], rule["resources"]
    resource, _, subresource = asked.partition("/")
    what = f"{resource}.{group}" if group else resource
    words = [what, f"--subresource={subresource}"] if subresource else [what]
    for verb in rule["verbs"]:
        question = ["auth", "can-i", verb, *words, who]
        space.wait(lambda asked=question: space.kubectl.attempt(*asked).returncode == 0, f"{rule} is in force")


def flat(rules: list[Json]) -> set[tuple[str, str, str]]:
    """Each right on its own: group, resource, verb."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
