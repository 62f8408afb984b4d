"""The operator's rights: what they are, word for word, and what they never are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.chart.conftest import Helm, Manifest

EVERYWHERE: list[str] = []
TWO_NAMESPACES = ["--set", "watchNamespaces={team-a,team-b}"]
MIRROR = ["--set", "mirror.enabled=true"]
MODES = {"everywhere": EVERYWHERE, "two-namespaces": TWO_NAMESPACES, "mirror": MIRROR}


@pytest.mark.parametrize("mode", MODES)
def test_rights_are_as_reviewed(helm: Helm, golden: Callable[[str, str], None], mode: str) -> None:
    rights = [_without_labels(manifest) for manifest in _rbac(helm, MODES[mode])]
    golden(f"rbac-{mode}.yaml", yaml.safe_dump_all(rights, sort_keys=False))


@pytest.mark.parametrize("mode", MODES)
def test_no_right_is_a_wildcard(helm: Helm, mode: str) -> None:
    for rule in _rules(_rbac(helm, MODES[mode])):
        for part in ("apiGroups", "resources", "verbs"):
            assert not [word for word in rule[part] if "*" in word], rule


@pytest.mark.parametrize("mode", MODES)
def test_only_the_key_can_be_read_of_all_secrets(helm: Helm, mode: str) -> None:
    rules = [rule for rule in _rules(_rbac(helm, MODES[mode])) if "secrets" in rule["resources"]]
    reading = [rule for rule in rules if set(rule["verbs"]) & {"get", "list", "watch"}]
    assert [(rule["verbs"], rule["resourceNames"]) for rule in reading] == [(["get"], ["gpudask-key"])]


@pytest.mark.parametrize("mode", MODES)
def test_only_the_own_lease_can_be_read_and_written(helm: Helm, mode: str) -> None:
    options = [*MODES[mode], "--set", "fullnameOverride=ours"]
    leases = [found for found in _rbac(helm, options) if "leases" in str(found.get("rules"))]
    [role] = leases
    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", "gpudask-system")
    limits = {tuple(rule["verbs"]): rule.get("resourceNames") for rule in role["rules"]}
    assert limits == {("get", "watch", "patch"): ["ours"], ("create",): None}


def test_watched_namespaces_take_no_cluster_role(helm: Helm) -> None:
    kinds = {manifest["kind"] for manifest in _rbac(helm, [*TWO_NAMESPACES, "--set", "userRoles=false"])}
    assert kinds == {"Role", "RoleBinding"}


@pytest.mark.parametrize("mode", MODES)
def test_every_binding_names_the_service_account(helm: Helm, mode: str) -> None:
    options = [*MODES[mode], "--set", "serviceAccount.name=ours,serviceAccount.create=false"]
    subjects = [subject for manifest in _rbac(helm, options) for subject in manifest.get("subjects", [])]
    assert subjects
    assert {(subject["name"], subject["namespace"]) for subject in subjects} == {("ours", "gpudask-system")}


def test_user_roles_aggregate_and_can_be_left_out(helm: Helm) -> None:
    names = {manifest["metadata"]["name"] for manifest in _rbac(helm, EVERYWHERE)}
    assert {"gpudask-edit", "gpudask-view"} <= names
    names = {manifest["metadata"]["name"] for manifest in _rbac(helm, ["--set", "userRoles=false"])}
    assert not {"gpudask-edit", "gpudask-view"} & names


@pytest.mark.parametrize("mode", MODES)
def test_rights_can_be_left_to_somebody_else(helm: Helm, mode: str) -> None:
    manifests = helm.manifests(*MODES[mode], "--set", "rbac.create=false,mirror.definitions=false")
    assert {manifest["kind"] for manifest in manifests} - {
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    } == {"ServiceAccount", "Deployment", "NetworkPolicy", "PodDisruptionBudget"}


def test_no_right_to_the_mirror_without_its_switch(helm: Helm) -> None:
    rules = _rules(_rbac(helm, [*EVERYWHERE, "--set", "deleteAfter=false"]))
    assert not [rule for rule in rules if "kubernetes.dask.org" in rule["apiGroups"]]
    [ours] = [rule for rule in rules if rule["resources"] == ["gpudaskclusters"] and "create" not in rule["verbs"]]
    assert ours["verbs"] == ["get", "list", "watch"], "no right to edit one, or to delete one"


@pytest.mark.parametrize(
    "options", [[*MIRROR, "--set", "deleteAfter=false"], []], ids=["for the mirror", "those that ask for it"]
)
def test_clusters_can_be_deleted_unless_that_is_switched_off(helm: Helm, options: list[str]) -> None:
    rules = _rules(_rbac(helm, [*options, "--set", "userRoles=false"]))
    assert [rule for rule in rules if "gpudaskclusters" in rule["resources"] and "delete" in rule["verbs"]]


def test_no_right_to_secrets_of_users(helm: Helm) -> None:
    for mode in MODES.values():
        roles = [found for found in _rbac(helm, [*mode, "--set", "userRoles=false"]) if "rules" in found]
        holding = [role["metadata"] for role in roles if any("secrets" in rule["resources"] for rule in role["rules"])]
        assert [(role["name"], role["namespace"]) for role in holding] == [("gpudask-key", "gpudask-system")]


def _rbac(helm: Helm, options: list[str]) -> list[Manifest]:
    return [found for found in helm.manifests(*options) if found["apiVersion"].startswith("rbac.")]


def _rules(manifests: list[Manifest]) -> list[dict[str, Any]]:
    return [rule for manifest in manifests for rule in manifest.get("rules", [])]


def _without_labels(manifest: Manifest) -> Manifest:
    labels = manifest["metadata"]["labels"]
    aggregation = {key: value for key, value in labels.items() if key.startswith("rbac.")}
    metadata = {**manifest["metadata"], "labels": aggregation}
    return {**manifest, "metadata": {key: value for key, value in metadata.items() if value}}
