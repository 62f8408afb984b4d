"""Commands that need no server: create --dry-run, render, convert."""

from pathlib import Path
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from gpudask.cli.output import Exit
from gpudask.cli.commands.render import objects
from tests.builders import a_cluster, a_manifest, a_pool
from tests.cli.invoke import invoke

ROOT = Path(__file__).parents[2]
STOCK = Path(__file__).parent / "stock" / "simple.yaml"


def created(*flags: str) -> dict[str, Any]:
    result = invoke("create", "demo", "--image", "me/dask:1", "--dry-run", *flags)
    assert result.exit_code == 0, result.stderr
    return yaml.safe_load(result.stdout)["spec"]


@pytest.mark.parametrize(
    ("flags", "pools"),
    [
        ([], [{"name": "cpu", "replicas": 1}]),
        (["--workers", "2"], [{"name": "cpu", "replicas": 2}]),
        (["--workers", "1-20"], [{"name": "cpu", "autoscale": {"min": 1, "max": 20}}]),
        (["--gpus", "4"], [{"name": "gpu", "replicas": 4, "gpu": {"count": 1}}]),
        (
            ["--workers", "2", "--gpus", "0-8"],
            [
                {"name": "cpu", "replicas": 2},
                {"name": "gpu", "autoscale": {"min": 0, "max": 8}, "gpu": {"count": 1}},
            ],
        ),
        (
            ["--cpu", "4", "--memory", "16Gi"],
            [{"name": "cpu", "replicas": 1, "resources": {"cpu": 4, "memory": "16Gi"}}],
        ),
        (["--memory", "16Gi"], [{"name": "cpu", "replicas": 1, "resources": {"cpu": 1, "memory": "16Gi"}}]),
    ],
)
def test_flags_become_pools(flags: list[str], pools: list[dict[str, Any]]):
    assert created(*flags)["pools"] == pools


def test_environment_variables_are_for_every_pod():
    assert created("--env", "A=1", "--env", "B=x=y")["env"] == [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "x=y"},
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["create"], Exit.USAGE, "name the cluster"),
        (["create", "demo", "-f", "x.yaml"], Exit.USAGE, "leave out the name and the flags"),
        (["create", "demo", "--image", "i", "--gpus", "8-2", "--dry-run"], Exit.FAILED, "min is larger than max"),
        (["create", "demo", "--image", "i", "--gpus", "many"], Exit.USAGE, "--gpus many: write a number of pods"),
        (["create", "demo", "--image", "i", "--env", "A"], Exit.USAGE, "--env A: write NAME=VALUE"),
        (["create", "Demo", "--image", "i", "--dry-run"], Exit.FAILED, "metadata.name: a cluster's name is"),
        (["create", "-f", "/no/such.yaml"], Exit.USAGE, "no such file: /no/such.yaml"),
        (["create", "-f", str(STOCK)], Exit.FAILED, "gpudask convert"),
        (["render", str(ROOT / "crds" / "gpudaskclusters.yaml")], Exit.FAILED, "holds a CustomResourceDefinition"),
        (["convert", "/no/such.yaml"], Exit.USAGE, "no such file"),
        (["convert", str(STOCK), "--strict"], Exit.FAILED, "--strict: 3 notes above are no hints"),
        (["scale", "demo", "gpu=x"], Exit.USAGE, "'gpu=x': write POOL=N"),
        (["scale", "demo"], Exit.USAGE, "gpudask scale demo gpu=4"),
        (["scale", "demo", "--replicas", "-1"], Exit.USAGE, "'-1': write POOL=N"),
        (["scale", "demo", "gpu=1", "--replicas", "2"], Exit.USAGE, "each pool once, by its name"),
        (["wait", "demo", "--for", "done"], Exit.USAGE, "--for done: write ready"),
        (["wait", "demo", "--timeout", "5"], Exit.USAGE, "is not a duration"),
        (["get", "demo", "-A"], Exit.USAGE, "leave out -A"),
        (["logs", "demo", "-f", "-p"], Exit.USAGE, "--follow or --previous"),
    ],
)
def test_a_mistake_is_named_with_what_to_write(arguments: list[str], code: Exit, said: str):
    result = invoke(*arguments)

    assert (result.exit_code, said in result.stderr) == (code, True), result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [\n", "line 2: expected the node content"),
        ("hello", "holds plain text: write apiVersion"),
        ("[a, b]", "holds a list: write apiVersion"),
        ("a: 1", "holds a document without kind"),
        ("{apiVersion: gpudask.dev/v1alpha1, kind: GpuDaskCluster, metadata: [x]}", "metadata.name: required"),
        ("{apiVersion: gpudask.dev/v1alpha1, kind: GpuDaskCluster, metadata: {name: 3}}", "metadata.name: required"),
        ("{apiVersion: gpudask.dev/v1alpha1, kind: GpuDaskCluster, metadata: {name: x}, spec: [1]}", "spec"),
        ("\x07", "Write YAML"),
        ("", "holds no manifest"),
    ],
)
def test_what_is_no_manifest_is_one_line_on_standard_error(text: str, said: str):
    for command in (["create", "--dry-run", "-f", "-"], ["render", "-"]):
        result = invoke(*command, stdin=text)

        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (Exit.FAILED, "", 1), result.stderr
        assert said in result.stderr


def test_a_manifest_from_standard_input_is_checked_and_printed_as_it_is():
    text = (ROOT / "examples" / "mixed.yaml").read_text()
    result = invoke("create", "-f", "-", "--dry-run", stdin=text)

    assert yaml.safe_load(result.stdout) == yaml.safe_load(text)


def test_the_manifests_namespace_and_the_flags_must_agree():
    text = yaml.safe_dump(a_manifest() | {"metadata": {"name": "a", "namespace": "b"}})
    result = invoke("render", "-", "-n", "c", stdin=text)

    assert "namespace 'b', -n says 'c'" in result.stderr


def test_converted_manifests_go_on_to_render():
    manifest = invoke("convert", str(STOCK))
    rendered = invoke("render", "-", "-o", "name", stdin=manifest.stdout)

    assert [line.partition("/")[0] for line in rendered.stdout.splitlines()].count("pod") == 3


def test_a_list_as_kubectl_prints_it_is_converted():
    listed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(STOCK.read_text())]})

    assert yaml.safe_load(invoke("convert", "-", stdin=listed).stdout)["metadata"]["name"] == "simple"


def test_an_example_is_rendered_with_its_pods_at_the_start():
    result = invoke("render", str(ROOT / "examples" / "mixed.yaml"), "-o", "name")

    assert [line.split("/")[1].rsplit("-", 1)[0] for line in result.stdout.splitlines()] == [
        "demo",
        "gpudask-preload",
        "demo-gpudask",
        "demo",
        "demo",
        "demo-scheduler",
        "demo-cpu-worker",
    ]


@pytest.mark.parametrize(
    ("pool", "overrides", "pods"),
    [
        ({}, [], 1),
        ({"replicas": 3}, [], 3),
        ({"autoscale": {"min": 2, "max": 9}}, [], 2),
        ({"replicas": 3}, [{"pool": "cpu", "replicas": 0}], 0),
        ({"replicas": 3}, [{"pool": "cpu", "replicas": 0, "until": "2026-12-01T18:00:01Z"}], 0),
        ({"replicas": 3}, [{"pool": "cpu", "replicas": 0, "until": "2026-12-01T18:00:00Z"}], 3),
    ],
)
def test_as_many_worker_pods_are_rendered_as_at_the_start(pool: dict[str, Any], overrides: list[Any], pods: int):
    cluster = a_cluster(a_pool(**pool), overrides=overrides)

    now = datetime(2026, 12, 1, 18, tzinfo=UTC).timestamp()
    assert sum("-worker-" in item["metadata"]["name"] for item in objects(cluster, {}, now=now)) == pods
    assert sum("-worker-" in item["metadata"]["name"] for item in objects(cluster, {}, one_of_each=True)) == 1


def test_a_suspended_cluster_has_no_pods():
    assert "Pod" not in {item["kind"] for item in objects(a_cluster(suspend=True), {})}
