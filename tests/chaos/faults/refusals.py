"""Pods that the API server refuses: admission webhooks, policies, quotas."""

from __future__ import annotations

from gpudask.api import Json

from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.target import ADMISSION, OBJECTS, Target

_GROUP = "admissionregistration.k8s.io/v1"
_PODS: Json = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
_SUPPORT: Json = _PODS | {"operations": ["CREATE", "UPDATE"], "resources": ["services", "configmaps"]}
_STATUS: Json = {
    "apiGroups": ["gpudask.dev"],
    "apiVersions": ["*"],
    "operations": ["UPDATE"],
    "resources": ["gpudaskclusters/status"],
}


@contextmanager
def webhook_away(target: Target, pick: float) -> Iterator[str]:
    """A webhook that nobody serves, and without whose word nothing is admitted: pods, or what a cluster has besides."""
    rules = [_PODS] if pick < 0.5 else [_PODS, _SUPPORT, _STATUS]
    webhook = {
        "name": "nobody.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/away"},
        "failurePolicy": "Fail",
        "timeoutSeconds": 1,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": _here(target),
        "rules": rules,
    }
    with _admission(target, {"kind": "ValidatingWebhookConfiguration", "webhooks": [webhook]}):
        yield "pods" if pick < 0.5 else "pods, Services, ConfigMaps, status"


@contextmanager
def pods_denied(target: Target, _pick: float) -> Iterator[str]:
    """A policy that denies each new pod."""
    denial = {"expression": "false", "message": "chaos denies it"}
    policy = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [_PODS]}, "validations": [denial]}
    binding = {
        "policyName": OBJECTS,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": _here(target)},
    }
    kinds: tuple[Json, Json] = (
        {"kind": "ValidatingAdmissionPolicy", "spec": policy},
        {"kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    )
    with _admission(target, *kinds):
        yield "new pods"


@contextmanager
def quota(target: Target, pick: float) -> Iterator[str]:
    """A quota of fewer pods than there are, or of no GPU more: what is there stays, and nothing new comes."""
    key = "pods" if pick < 0.5 else "requests.nvidia.com/gpu"
    hard = {key: str(len(target.pods()) // 2) if key == "pods" else "1"}
    try:
        target.apply(
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": OBJECTS}, "spec": {"hard": hard}}
        )
        yield f"{key}: {hard[key]}"
    finally:
        target.undo("a quota", lambda: target.do("delete", "resourcequota", OBJECTS, "--ignore-not-found"))


@contextmanager
def _admission(target: Target, *objects: Json) -> Iterator[None]:
    def remove() -> None:
        for kind in ADMISSION:
            target.do("delete", kind, OBJECTS, "--ignore-not-found")

    try:
        target.apply(*({"apiVersion": _GROUP, "metadata": {"name": OBJECTS}} | item for item in objects))
        yield
    finally:
        target.undo("an admission rule", remove)


def _here(target: Target) -> Json:
    return {"matchLabels": {"kubernetes.io/metadata.name": target.namespace}}
