"""A partial pod template merged over a rendered pod, with Kubernetes' strategic-merge meaning.

Pure: JSON objects in, a new JSON object out. Knows nothing of clusters and pools, nor whether the pod is valid:
the API server says that when the pod is created strictly.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from gpudask.api import Json

Key = tuple[str, ...]

_CONTAINER: dict[str, Key] = {
    "env": ("name",),
    "ports": ("containerPort", "protocol"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
}
CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")

# The lists of a pod whose items merge, by path, and what tells their items apart. Other lists are replaced.
# Source: `x-kubernetes-patch-merge-key` of a pod's spec in the API server's /openapi/v2 (Kubernetes 1.36), and
# for ports `x-kubernetes-list-map-keys`, or 53/UDP would overwrite 53/TCP. A test asks a live server.
MERGE_KEYS: dict[str, Key] = {
    **{f"spec.{containers}": ("name",) for containers in CONTAINER_LISTS},
    **{f"spec.{containers}.{name}": key for containers in CONTAINER_LISTS for name, key in _CONTAINER.items()},
    "spec.hostAliases": ("ip",),
    "spec.imagePullSecrets": ("name",),
    "spec.resourceClaims": ("name",),
    "spec.schedulingGates": ("name",),
    "spec.topologySpreadConstraints": ("topologyKey",),
    "spec.volumes": ("name",),
}
# Lists without a merge key that are added to, not replaced: our decision, or any toleration of a user would
# take away the one that lets GPU pods onto GPU nodes.
ADDED = frozenset({"spec.tolerations"})

_DEFAULTS = {"protocol": "TCP"}
_METADATA = ("labels", "annotations")


def merge_pod(base: Json, patch: Json) -> Json:
    """The pod `base` with the partial template `patch` merged over it; neither is changed.

    As `kubectl patch --type strategic` does it: objects merge, the lists of MERGE_KEYS merge item by item,
    other lists and plain values are replaced, `null` removes, `$patch: replace` and `$patch: delete` act on the
    object or item that holds them, `$retainKeys` drops the other keys, and `$setElementOrder` is ignored. Two
    things differ: tolerations are added to those of `base`, and `$patch: replace` in an object that `base`
    lacks sets it (kubectl drops it).

    Raises:
        ValueError: `patch` has the wrong shape; the message names the path and says what to write.
    """
    patch = {part: value for part, value in patch.items() if value is not None}
    for part in patch:
        if part not in ("metadata", "spec"):
            raise ValueError(f"{part}: a pod template has metadata and spec only: remove {part}")
    for part in _object(patch.get("metadata", {}), "metadata"):
        if part not in _METADATA:
            raise ValueError(f"metadata.{part}: a template sets labels and annotations only: remove {part}")
    return _merge_object(deepcopy(base), deepcopy(patch), path="", shown="")


def _merge_object(base: Json, patch: Json, *, path: str, shown: str) -> Json:
    """`path` is the key into MERGE_KEYS, `shown` the same for people, with the names of list items."""
    directive = patch.pop("$patch", None)
    if directive == "delete":
        return {}
    if directive == "replace":
        base = {}
    elif directive is not None:
        raise ValueError(f"{shown}.$patch: {directive!r} is not known here: write replace or delete")
    result = _retained(base, patch, shown)
    for name, value in patch.items():
        if name.startswith("$setElementOrder/"):
            continue
        if name.startswith("$"):
            raise ValueError(f"{_join(shown, name)}: not supported here: use $patch, $retainKeys or null")
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merge_value(result.get(name), value, path=_join(path, name), shown=_join(shown, name))
    return result


def _merge_value(base: Any, patch: Any, *, path: str, shown: str) -> Any:
    if path in MERGE_KEYS:
        return _merge_list(_list(base or [], shown), _list(patch, shown), path=path, shown=shown)
    if path in ADDED:
        return _add_list(_list(base or [], shown), _list(patch, shown), shown=shown)
    if isinstance(base, list) or (base is None and isinstance(patch, list)):
        return [_clean(item, f"{shown}[{i}]") for i, item in enumerate(_list(patch, shown))]
    if isinstance(base, dict) or (base is None and isinstance(patch, dict)):
        return _merge_object(base or {}, _object(patch, shown), path=path, shown=shown)
    if isinstance(patch, dict | list):
        raise ValueError(f"{shown}: expected a plain value, got {_kind(patch)}: write one such as {base!r}")
    return patch


def _clean(item: Any, shown: str) -> Any:
    """An item of a list that is replaced as a whole, without directives, which have nothing to act on in it."""
    return _merge_object({}, item, path=shown, shown=shown) if isinstance(item, dict) else item


def _merge_list(base: list[Any], patch: list[Any], *, path: str, shown: str) -> list[Any]:
    key = MERGE_KEYS[path]
    if any(_object(item, f"{shown}[{i}]").get("$patch") == "replace" for i, item in enumerate(patch)):
        base, patch = [], [item for item in patch if "$patch" not in item]
    merged = {_identity(item, key, f"{shown}[{i}]"): item for i, item in enumerate(base)}
    written: dict[Key, None] = {}
    for i, item in enumerate(patch):
        identity = _identity(item, key, f"{shown}[{i}]")
        label = f"{shown}[{key[0]}={identity[0]}]"
        if item.get("$patch") == "delete":
            merged.pop(identity, None)
            continue
        if identity in written:
            raise ValueError(f"{label}: stands there twice: remove one")
        written[identity] = None
        merged[identity] = _merge_object(merged.get(identity, {}), item, path=path, shown=label)
    before = [_identity(item, key, shown) for item in base]
    return [merged[identity] for identity in _ordered(before, list(written), merged)]


def _ordered(before: list[Key], written: list[Key], merged: dict[Key, Json]) -> list[Key]:
    """Kubectl's order: what the patch names stands in its order, the others in theirs.

    Between the two, an item of the patch goes first unless both stood in `base` the other way round.
    https://github.com/kubernetes/design-proposals-archive/blob/main/cli/preserve-order-in-strategic-merge-patch.md
    """
    place = {identity: i for i, identity in enumerate(before)}
    others = [identity for identity in before if identity in merged and identity not in written]
    result: list[Key] = []
    for identity in written:
        while others and identity in place and place[others[0]] < place[identity]:
            result.append(others.pop(0))
        result.append(identity)
    return result + others


def _add_list(base: list[Any], patch: list[Any], *, shown: str) -> list[Any]:
    items = [_object(item, f"{shown}[{i}]") for i, item in enumerate(patch)]
    if any(item.get("$patch") == "replace" for item in items):
        base = []
    for i, item in enumerate(items):
        if item.get("$patch", "replace") != "replace":
            raise ValueError(f"{shown}[{i}].$patch: {shown} has no key to find an item by: write replace")
    added = [item for item in items if "$patch" not in item]
    return base + [item for i, item in enumerate(added) if item not in base and item not in added[:i]]


def _retained(base: Json, patch: Json, shown: str) -> Json:
    if "$retainKeys" not in patch:
        return base
    kept = _list(patch.pop("$retainKeys"), _join(shown, "$retainKeys"))
    for name, value in patch.items():
        if value is not None and not name.startswith("$") and name not in kept:
            raise ValueError(f"{_join(shown, '$retainKeys')}: lacks {name}, which stands beside it: add it")
    return {name: value for name, value in base.items() if name in kept}


def _identity(item: Any, key: Key, shown: str) -> Key:
    item = _object(item, shown)
    if item.get(key[0]) is None:
        raise ValueError(f"{shown}.{key[0]}: missing: write the {key[0]} of the item to add or change")
    identity = tuple(item.get(part, _DEFAULTS.get(part)) for part in key)
    if any(isinstance(part, dict | list) for part in identity):
        raise ValueError(f"{shown}.{key[0]}: expected a plain value, got {_kind(item[key[0]])}")
    return identity


def _list(value: Any, shown: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{shown}: expected a list, got {_kind(value)}: write its items with a leading '-'")
    return value


def _object(value: Any, shown: str) -> Json:
    if not isinstance(value, dict):
        raise ValueError(f"{shown}: expected an object, got {_kind(value)}: write its fields as 'name: value'")
    return value


def _kind(value: Any) -> str:
    kinds = {list: "a list", dict: "an object", str: f"the string {value!r}", type(None): "null"}
    return kinds.get(type(value), repr(value))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
