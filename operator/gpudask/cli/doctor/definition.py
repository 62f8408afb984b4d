"""The check of our resource definition: installed, served, stored, and of this program's version. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpudask.api import crd
from gpudask.api.json_object import Json
from gpudask.api.resource import VERSION
from gpudask.cli.doctor.facts import CRD, Facts, Finding, Level

_CHECK = "resource definition"
_NAMED = 3
_MISSING, _UNKNOWN, _CHANGED = "missing", "unknown", "changed"
INSTALL = "helm install gpudask charts/gpudask -n gpudask-system --create-namespace --set image.repository=..."
_UPGRADE = "kubectl apply --server-side --force-conflicts -f charts/gpudask/crds"
_NEWER_PROGRAM = "pip install --upgrade '.[cli]' from a checkout of the installed version"
_REWRITE = "kubectl get gdc -A -o json | kubectl replace -f -, then take the old one out of status.storedVersions"


def definition(facts: Facts) -> list[Finding]:
    """Whether the resource can be used, and by this program."""
    if facts.crd is None:
        return [_from_discovery(facts)]
    if not facts.crd:
        return [Finding(_CHECK, Level.PROBLEM, f"{CRD} is not installed", INSTALL)]
    versions = {item["name"]: item for item in facts.crd["spec"]["versions"]}
    served = [name for name, item in versions.items() if item.get("served")]
    if VERSION not in served:
        text = f"{CRD} serves {', '.join(served) or 'no version'}, this program speaks {VERSION}"
        return [Finding(_CHECK, Level.PROBLEM, text, f"{_UPGRADE}; or {_NEWER_PROGRAM}")]
    if broken := _condition(facts.crd):
        return [Finding(_CHECK, Level.PROBLEM, broken, f"see kubectl describe crd {CRD}")]
    return [_schema(versions[VERSION]["schema"]), *_stored(facts.crd)]


def _from_discovery(facts: Facts) -> Finding:
    """The finding that everybody may have, where the definition itself may not be read."""
    if facts.served is None:
        return facts.unread(_CHECK, "crd")
    if not facts.served:
        return Finding(_CHECK, Level.PROBLEM, f"the server knows no {CRD} of version {VERSION}", INSTALL)
    return Finding(_CHECK, Level.OK, f"{CRD} serves {VERSION}; its schema is for administrators to read")


def _condition(definition: Json) -> str:
    """The server's reason why a definition cannot be used; empty where it can."""
    conditions = {item["type"]: item for item in (definition.get("status") or {}).get("conditions") or []}
    if conditions.get("Terminating", {}).get("status") == "True":
        return f"{CRD} is being deleted, and all clusters with it"
    for kind in ("NamesAccepted", "Established"):
        found = conditions.get(kind, {})
        if found.get("status") == "False" or (kind == "Established" and not found):
            words = found.get("message", "no word of it")
            return f"{CRD} is not {'established' if kind == 'Established' else 'known by its names'}: {words}"
    return ""


def _schema(there: Json) -> Finding:
    ours = crd.render()["spec"]["versions"][0]["schema"]
    found = sorted(set(_differences(there, ours)))
    missing, unknown = ([path for what, path in found if what == wanted] for wanted in (_MISSING, _UNKNOWN))
    if not found:
        return Finding(_CHECK, Level.OK, f"{CRD} serves {VERSION}, with this version's schema")
    if unknown and not missing:
        text = f"{CRD} is newer than this program, which does not know: {_listed(unknown)}"
        return Finding(_CHECK, Level.WARNING, text, _NEWER_PROGRAM)
    if missing and not unknown:
        text = f"{CRD} is older than this program: it lacks {_listed(missing)}"
        return Finding(_CHECK, Level.WARNING, text, _UPGRADE)
    text = f"{CRD} has another schema than this version: {_listed([path for _, path in found])}"
    return Finding(_CHECK, Level.WARNING, text, f"if this program is the newer one: {_UPGRADE}; else {_NEWER_PROGRAM}")


def _stored(definition: Json) -> list[Finding]:
    stored = (definition.get("status") or {}).get("storedVersions") or []
    wanted = next((item["name"] for item in definition["spec"]["versions"] if item.get("storage")), VERSION)
    old = [name for name in stored if name != wanted]
    if not old:
        return []
    text = f"clusters may still be stored as {', '.join(old)}, new ones are as {wanted}"
    return [Finding(_CHECK, Level.WARNING, text, _REWRITE)]


def _listed(named: list[str]) -> str:
    return ", ".join(named[:_NAMED]) + (f" and {len(named) - _NAMED} more" if len(named) > _NAMED else "")


def _differences(there: Json, here: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Fields that the server misses, that we do not know, or that differ, each with its path."""
    for key in {*there, *here} - {"properties"}:
        inner = there.get(key), here.get(key)
        if key in ("items", "openAPIV3Schema") and isinstance(inner[0], dict) and isinstance(inner[1], dict):
            yield from _differences(inner[0], inner[1], path)
        elif inner[0] != inner[1]:
            yield _CHANGED, path or "the whole"
    fields = there.get("properties", {}), here.get("properties", {})
    for name in {*fields[0], *fields[1]}:
        below = f"{path}.{name}" if path else name
        if name in fields[0] and name in fields[1]:
            yield from _differences(fields[0][name], fields[1][name], below)
        else:
            yield (_UNKNOWN if name in fields[0] else _MISSING), below
