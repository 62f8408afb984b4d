"""A spec is rendered once for each of its pools, however many pods they have, and in time that fits its size."""

from __future__ import annotations


import ast
import gc
from typing import Any

import dask.config
import pytest

from gpudask.desired import pod, spec_hash
from gpudask.desired.spec_hash import Memo
from gpudask.desired.workers import worker_pod
from tests.builders import a_cluster, a_pool

COUNT = 50
LARGE = {"x": {f"k{number}": "v" * 50 for number in range(200)}}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often what grows with a spec was done."""
    counted = {"environment": 0, "merge": 0, "shared": 0}

    def counts(module: Any, attribute: str, name: str) -> None:
        original = getattr(module, attribute)

        def counting(*arguments: Any) -> Any:
            counted[name] += 1
            return original(*arguments)

        monkeypatch.setattr(module, attribute, counting)

    counts(pod, "dask_environment", "environment")
    counts(pod, "merge_pod", "merge")
    counts(spec_hash, "_shared", "shared")
    return counted


def test_the_pods_of_a_pool_are_rendered_once(calls: dict[str, int]):
    cluster = a_cluster(a_pool("a"), a_pool("b"), config=LARGE)
    pods = [worker_pod(cluster, pool, number, f"{number:05}") for pool in cluster.spec.pools for number in range(COUNT)]
    assert len({made["metadata"]["name"] for made in pods}) == 2 * COUNT
    assert calls == {"environment": 2, "merge": 4, "shared": 1}


def test_an_edited_spec_is_rendered_anew(calls: dict[str, int]):
    for value in ("1", "2"):
        cluster = a_cluster(config={"x": {"y": value}})
        made = worker_pod(cluster, cluster.spec.pools[0], 0, "abcde")
        (variable,) = (item for item in made["spec"]["containers"][0]["env"] if item["name"] == "DASK_X__Y")
        assert variable["value"] == repr(value)
    assert calls["environment"] == 2


def test_clusters_that_share_a_spec_get_pods_of_their_own():
    one = a_cluster(name="one")
    other = type(one)("two", "elsewhere", "uid-of-two", 1, False, one.spec, one.status)  # noqa: FBT003
    pods = [worker_pod(cluster, one.spec.pools[0], 0, "abcde") for cluster in (one, other)]
    assert [made["metadata"]["namespace"] for made in pods] == ["default", "elsewhere"]
    assert [made["metadata"]["ownerReferences"][0]["uid"] for made in pods] == ["uid-of-one", "uid-of-two"]


def test_a_pods_names_stand_wherever_they_belong():
    cluster = a_cluster()
    first, second = (worker_pod(cluster, cluster.spec.pools[0], number, "abcde") for number in (1, 2))
    for made, name in ((first, "demo-cpu-worker-1"), (second, "demo-cpu-worker-2")):
        container = made["spec"]["containers"][0]
        assert made["metadata"]["name"] == name
        assert made["metadata"]["annotations"]["gpudask.dev/dask-name"] == f"{name}-abcde"
        assert container["args"][container["args"].index("--name") + 1] == f"{name}-abcde"
        assert any(f"pod={name}-abcde" in word for word in container["lifecycle"]["preStop"]["exec"]["command"])
        assert "\0" not in repr(made)


@pytest.mark.parametrize("args", [None, ["sleep", "1"], "not a list", [["nested"], 1]])
def test_a_template_with_arguments_of_its_own_keeps_them(args: Any):
    template = {"spec": {"containers": [{"name": "dask", "args": args}]}}
    cluster = a_cluster(a_pool(template=template))
    try:
        container = worker_pod(cluster, cluster.spec.pools[0], 0, "abcde")["spec"]["containers"][0]
    except ValueError as error:
        assert "args" in str(error)  # noqa: PT017 - what is no list cannot be merged
    else:
        assert container.get("args") == args


def test_long_strings_are_not_parsed(monkeypatch: pytest.MonkeyPatch):
    parsed: list[int] = []
    parse = ast.literal_eval
    monkeypatch.setattr(ast, "literal_eval", lambda text: parsed.append(len(text)) or parse(text))
    pod.dask_environment({"x": {"y": "[" + "1," * 50_000 + "]", "z": "1" * 1000}})
    assert parsed == [1000]


@pytest.mark.parametrize(
    "text", ["[" + "1," * 5_000 + "]", "v" * 5_000, "'\n\"" * 2_000, "(" * 5_000, "-" * 5_000 + "1"]
)
def test_long_strings_arrive_as_written(text: str):
    (variable,) = pod.dask_environment({"x": {"y": text}})
    assert dask.config.collect_env({variable["name"]: variable["value"]}) == {"x": {"y": text}}


class Thing:
    """Anything that can be referred to weakly."""


def test_what_is_gone_is_not_kept():
    memo: Memo[list[int]] = Memo(10)
    thing = Thing()
    assert memo.get((thing,), lambda: [1]) is memo.get((thing,), lambda: [2])
    del thing
    gc.collect()
    assert memo._values == {}


def test_no_more_is_kept_than_the_size():
    memo: Memo[int] = Memo(2)
    things = [Thing() for _ in range(3)]
    for number, thing in enumerate(things):
        memo.get((thing,), lambda number=number: number)
    assert [memo.get((thing,), lambda: -1) for thing in (things[1], things[2], things[0])] == [1, 2, -1]
