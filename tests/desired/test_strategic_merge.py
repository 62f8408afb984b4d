"""`merge_pod` means what `kubectl patch --type strategic` means."""

from __future__ import annotations

from gpudask.api import Json

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpudask.desired.strategic_merge import MERGE_KEYS, merge_pod

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kubectl import Kubectl


def pod(**spec: Any) -> Json:
    return {
        "metadata": {"name": "demo-cpu-worker-0", "labels": {"gpudask.dev/pool": "cpu"}},
        "spec": {"containers": [{"name": "dask", "image": "ours"}]} | spec,
    }


def merged(base: Json, **patch: Any) -> Json:
    return merge_pod(base, {"spec": patch})["spec"]


def container(**fields: Any) -> Json:
    return {"name": "dask"} | fields


def test_labels_are_added_to_ours():
    result = merge_pod(pod(), {"metadata": {"labels": {"team": "a"}}})
    assert result["metadata"]["labels"] == {"gpudask.dev/pool": "cpu", "team": "a"}
    assert result["metadata"]["name"] == "demo-cpu-worker-0"


def test_the_main_container_is_changed_by_name_and_another_is_added_before_it():
    spec = merged(pod(), containers=[{"name": "log", "image": "x"}, container(image="theirs", tty=True)])
    assert spec["containers"] == [
        {"name": "log", "image": "x"},
        {"name": "dask", "image": "theirs", "tty": True},
    ]


def test_env_merges_by_name_and_mounts_by_path():
    ours = pod(
        containers=[
            container(
                env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                volumeMounts=[{"mountPath": "/a", "name": "v"}],
            )
        ]
    )
    patch = container(env=[{"name": "B", "value": "3"}], volumeMounts=[{"mountPath": "/a", "name": "w"}])
    (dask,) = merged(ours, containers=[patch])["containers"]
    assert dask["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}]
    assert dask["volumeMounts"] == [{"mountPath": "/a", "name": "w"}]


def test_a_port_of_another_protocol_is_another_port():
    ours = pod(containers=[container(ports=[{"containerPort": 53}])])
    (dask,) = merged(
        ours,
        containers=[
            container(
                ports=[
                    {"containerPort": 53, "protocol": "UDP"},
                    {"containerPort": 53, "protocol": "TCP", "name": "dns"},
                ]
            )
        ],
    )["containers"]
    assert dask["ports"] == [
        {"containerPort": 53, "protocol": "UDP"},
        {"containerPort": 53, "protocol": "TCP", "name": "dns"},
    ]


def test_tolerations_are_added_and_a_repeated_one_stays_single():
    gpu, spot = {"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "spot", "operator": "Exists"}
    assert merged(pod(tolerations=[gpu]), tolerations=[spot, gpu])["tolerations"] == [gpu, spot]


def test_tolerations_are_replaced_on_request():
    spec = merged(pod(tolerations=[{"key": "a"}]), tolerations=[{"$patch": "replace"}, {"key": "b"}])
    assert spec["tolerations"] == [{"key": "b"}]


def test_lists_without_a_key_are_replaced():
    ours = pod(containers=[container(args=["a", "b"])])
    assert merged(ours, containers=[container(args=["c"])])["containers"] == [container(args=["c"])]


def test_null_removes_a_field():
    assert "nodeSelector" not in merged(pod(nodeSelector={"a": "b"}), nodeSelector=None)
    assert merged(pod(nodeSelector={"a": "b", "c": "d"}), nodeSelector={"a": None})["nodeSelector"] == {"c": "d"}


def test_an_empty_spec_changes_nothing():
    assert merge_pod(pod(), {"spec": None}) == pod()


def test_patch_replace_sets_an_object_whether_or_not_it_was_there():
    replacement = {"$patch": "replace", "c": "d"}
    assert merged(pod(nodeSelector={"a": "b"}), nodeSelector=replacement)["nodeSelector"] == {"c": "d"}
    assert merged(pod(), nodeSelector=replacement)["nodeSelector"] == {"c": "d"}


def test_patch_delete_removes_an_item():
    ours = pod(volumes=[{"name": "a"}, {"name": "b"}])
    assert merged(ours, volumes=[{"name": "a", "$patch": "delete"}])["volumes"] == [{"name": "b"}]


def test_retain_keys_changes_the_source_of_a_volume():
    ours = pod(volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}}])
    theirs = {"name": "shm", "hostPath": {"path": "/shm"}, "$retainKeys": ["name", "hostPath"]}
    assert merged(ours, volumes=[theirs])["volumes"] == [{"name": "shm", "hostPath": {"path": "/shm"}}]


def test_what_it_is_given_stays_as_it_was():
    base, patch = pod(), {"spec": {"containers": [container(env=[{"name": "A"}])], "$setElementOrder/containers": []}}
    before = json.dumps([base, patch])
    merge_pod(base, patch)["spec"]["containers"][0]["env"].append({})
    assert json.dumps([base, patch]) == before


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"status": {}}, "status: a pod template has metadata and spec only: remove status"),
        ({"metadata": {"name": "x"}}, "metadata.name: a template sets labels and annotations only: remove name"),
        ({"spec": []}, "spec: expected an object, got a list: write"),
        ({"spec": {"containers": {"name": "dask"}}}, "spec.containers: expected a list, got an object: write"),
        ({"spec": {"containers": ["dask"]}}, "spec.containers[0]: expected an object, got the string 'dask': write"),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers[0].name: missing: write the name"),
        ({"spec": {"containers": [{"name": ["x"]}]}}, "spec.containers[0].name: expected a plain value, got a list"),
        ({"spec": {"containers": [container(), container()]}}, "spec.containers[name=dask]: stands there twice"),
        (
            {"spec": {"containers": [container(env=[{"value": "1"}])]}},
            "spec.containers[name=dask].env[0].name: missing",
        ),
        ({"spec": {"containers": [container(env={"A": "1"})]}}, "spec.containers[name=dask].env: expected a list"),
        ({"spec": {"nodeSelector": "gpu"}}, "spec.nodeSelector: expected an object, got the string 'gpu'"),
        ({"spec": {"priority": [1]}}, "spec.priority: expected a plain value, got a list: write one such as 1"),
        ({"spec": {"tolerations": {"key": "a"}}}, "spec.tolerations: expected a list, got an object"),
        ({"spec": {"tolerations": [{"$patch": "delete"}]}}, "spec.tolerations[0].$patch: spec.tolerations has no key"),
        ({"spec": {"nodeSelector": {"$patch": "merge"}}}, "spec.nodeSelector.$patch: 'merge' is not known here"),
        ({"spec": {"$deleteFromPrimitiveList/x": []}}, "spec.$deleteFromPrimitiveList/x: not supported here"),
        (
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}, "$retainKeys": ["name"]}]}},
            "spec.volumes[name=v].$retainKeys: lacks emptyDir",
        ),
    ],
)
def test_a_wrong_shape_is_refused_with_its_path(patch: Json, message: str):
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        merge_pod(pod(nodeSelector={"a": "b"}, priority=1), patch)


# --- kubectl as the judge -------------------------------------------------------------------------------------

_VALUES = st.sampled_from(["1", "2"])


def _items(
    key: str, names: list[Any], fields: dict[str, st.SearchStrategy[Any]], *, patch: bool
) -> st.SearchStrategy[Any]:
    """Lists of distinct items; those of a patch may hold directives and nulls."""
    item = st.fixed_dictionaries({key: st.sampled_from(names)}, optional=fields)
    lists = st.lists(item, min_size=1, max_size=4, unique_by=lambda item: item[key])
    if not patch:
        return lists
    directive = st.sampled_from([None, None, None, "delete", "replace"])
    return st.tuples(lists, directive, st.integers(0, 3)).map(lambda drawn: _with_directive(key, *drawn))


def _with_directive(key: str, items: list[Json], directive: str | None, index: int) -> list[Json]:
    index %= len(items)
    if directive == "delete":
        return [*items[:index], {key: items[index][key], "$patch": "delete"}, *items[index + 1 :]]
    return [*items, {"$patch": "replace"}] if directive == "replace" else items


def _nullable(strategy: st.SearchStrategy[Any], *, patch: bool) -> st.SearchStrategy[Any]:
    return st.one_of(strategy, strategy, st.none()) if patch else strategy


def _containers(names: list[str], *, patch: bool) -> st.SearchStrategy[Any]:
    value = _nullable(_VALUES, patch=patch)
    path = {"name": st.sampled_from(["u", "v"])}
    fields = {
        "image": _nullable(_VALUES, patch=patch),
        "args": _nullable(st.lists(_VALUES, max_size=2), patch=patch),
        "env": _items("name", ["A", "B", "C", "D"], {"value": value}, patch=patch),
        "volumeMounts": _items("mountPath", ["/a", "/b", "/c"], path, patch=patch),
        "ports": _items("containerPort", [1, 2, 3], {"name": _VALUES}, patch=patch),
        "resources": st.fixed_dictionaries(
            {}, optional={"limits": st.dictionaries(st.sampled_from(["cpu", "memory"]), value)}
        ),
    }
    return _items("name", names, fields, patch=patch)


def _pods(*, patch: bool) -> st.SearchStrategy[Json]:
    value = _nullable(_VALUES, patch=patch)
    spec = {
        "containers": _containers(["dask", "log", "c"], patch=patch),
        "initContainers": _containers(["i", "j"], patch=patch),
        "nodeSelector": _nullable(st.dictionaries(st.sampled_from("abc"), value), patch=patch),
        "priorityClassName": value,
        "volumes": _items("name", ["u", "v", "w"], {"hostPath": st.just({"path": "/x"})}, patch=patch),
        "imagePullSecrets": _items("name", ["p", "q", "r"], {}, patch=patch),
        "hostAliases": _items("ip", ["10.0.0.1", "10.0.0.2"], {"hostnames": st.lists(_VALUES)}, patch=patch),
        "topologySpreadConstraints": _items("topologyKey", ["x", "y"], {"maxSkew": st.integers(1, 2)}, patch=patch),
    }
    labels = st.dictionaries(st.sampled_from("abc"), value)
    return st.fixed_dictionaries(
        {"metadata": st.fixed_dictionaries({"labels": labels}), "spec": st.fixed_dictionaries({}, optional=spec)}
    )


def _strip(value: Any) -> Any:
    """Without what kubectl's typed round trip adds or drops: empty and null fields, and the zeros of maxSkew."""
    if isinstance(value, list):
        return [_strip(item) for item in value]
    if isinstance(value, dict):
        empty = (None, "", [], {})
        defaults = ("topologyKey", "whenUnsatisfiable", "maxSkew", "mountPath")
        kept = {k: _strip(v) for k, v in value.items()}
        return {k: v for k, v in kept.items() if v not in empty and not (k in defaults and v in ("", 0))}
    return value


def _nested_in_new(base: Json, patch: Json) -> bool:
    """Whether a directive or null stands inside an item that `base` lacks: kubectl leaves its husk there."""
    lists = ("containers", "initContainers")
    for name in lists:
        ours = {item["name"] for item in base["spec"].get(name, [])}
        replaced = any(item.get("$patch") == "replace" for item in patch["spec"].get(name, []))
        for item in patch["spec"].get(name, []):
            new = replaced or item.get("name") not in ours
            if new and any(mark in json.dumps(list(item.values())) for mark in ("$patch", "null")):
                return True
    return False


@pytest.mark.api  # it needs the API server's kubectl alone
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(base=_pods(patch=False), patch=_pods(patch=True))
def test_it_does_what_kubectl_does(
    kubectl_local: Kubectl, tmp_path_factory: pytest.TempPathFactory, base: Json, patch: Json
):
    assume(not _nested_in_new(base, patch))
    file: Path = tmp_path_factory.getbasetemp() / "base.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod"} | base))
    arguments = ("patch", "--local", "--type", "strategic", "-o", "json", "-f", str(file), "-p", json.dumps(patch))
    answer = subprocess.run([kubectl_local.path, *arguments], capture_output=True, text=True, check=True)
    expected = json.loads(answer.stdout)
    ours = merge_pod(base, patch)
    assert _strip(ours["spec"]) == _strip(expected.get("spec", {}))
    assert _strip(ours["metadata"]) == _strip(expected["metadata"])


@pytest.mark.api
def test_the_merge_keys_are_the_api_servers(kubectl: Kubectl):
    definitions = json.loads(kubectl("get", "--raw", "/openapi/v2").stdout)["definitions"]
    served = dict(_merge_lists(definitions, "io.k8s.api.core.v1.PodSpec", "spec"))
    served = {path: keys for path, keys in served.items() if "volumeClaimTemplate" not in path}
    assert set(MERGE_KEYS) == set(served)
    for path, ours in MERGE_KEYS.items():
        merge_key, map_keys = served[path]
        assert ours[0] == merge_key, path
        assert set(ours) <= {merge_key, *map_keys}, path


def _merge_lists(definitions: Json, name: str, path: str) -> Any:
    for field, schema in definitions[name].get("properties", {}).items():
        inner = f"{path}.{field}"
        if "merge" in schema.get("x-kubernetes-patch-strategy", ""):
            yield inner, (schema.get("x-kubernetes-patch-merge-key"), schema.get("x-kubernetes-list-map-keys", []))
        target = (schema.get("items") or schema.get("additionalProperties") or schema).get("$ref", "")
        if "api.core" in target or "PersistentVolumeClaimTemplate" in target:
            yield from _merge_lists(definitions, target.rsplit("/", 1)[1], inner)
