"""The chart is clean, and bad values are refused with a word about what to write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.chart.conftest import REPOSITORY

if TYPE_CHECKING:
    from tests.chart.conftest import Helm

CHART = str(Path(__file__).resolve().parents[2] / "charts" / "gpudask")

BAD_VALUES = {
    "misspelt-name": ["--set", "watchNamespace=a"],
    "replicas-below-zero": ["--set", "replicas=-1"],
    "namespaces-not-a-list": ["--set", "watchNamespaces=a"],
    "namespace-in-capitals": ["--set", "watchNamespaces={Team_A}"],
    "namespace-twice": ["--set", "watchNamespaces={a,a}"],
    "run-as-root": ["--set", "runAsUser=0"],
    "image-as-one-string": ["--set", "image=gpudask/operator:1"],
    "image-of-nobody": ["--set", "image.repository="],
    "runbook-with-an-anchor": ["--set", "alerts.runbookUrl=https://wiki.example/alerts#x"],
    "dashboards-misspelt": ["--set", "dashboards.enable=true"],
    "log-level": ["--set", "log.level=verbose"],
    "memory-unit": ["--set", "resources.limits.memory=512mb"],
    "own-variable": ["--set", "extraEnv[0].name=GPUDASK_NAMESPACE"],
    "own-label": ["--set", r"podLabels.app\.kubernetes\.io/name=x"],
    "own-label-everywhere": ["--set", r"commonLabels.helm\.sh/chart=x"],
    "label-not-a-string": ["--set", "commonLabels.cost-center=42"],
    "attribution-twice": ["--set", r"attribution={example.com/team,example-com/team}"],
    "attribution-no-label": ["--set", r"attribution={my team}"],
    "metrics-of-nobody": ["--set", "metrics.enabled=false,metrics.service=true"],
    "metrics-read-twice": ["--set", "metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true"],
    "old-kubernetes": ["--kube-version", "1.28.0"],
}


def test_lint_finds_nothing(helm: Helm) -> None:
    done = helm.run("lint", "--strict", CHART, *REPOSITORY)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("case", BAD_VALUES)
def test_bad_values_are_refused_with_what_to_write(helm: Helm, golden: Callable[[str, str], None], case: str) -> None:
    golden(f"refusal-{case}.txt", helm.refusal(*BAD_VALUES[case]))


def test_the_schema_and_the_documented_defaults_name_the_same_values() -> None:
    schema = json.loads((Path(CHART) / "values.schema.json").read_text())["properties"]
    defaults = yaml.safe_load((Path(CHART) / "values.yaml").read_text())
    assert schema.keys() - {"global"} == defaults.keys()
