"""What a Role has to hold: the next step of a 403's answer. Pure."""

from __future__ import annotations

from gpudask.api.resource import GROUP, PLURAL

# Resources outside the core group that this client asks for.
_GROUPS = {PLURAL: GROUP, "ingresses": "networking.k8s.io", "selfsubjectaccessreviews": "authorization.k8s.io"}


def rbac_step(resource: str, namespace: str, *verbs: str, group: str | None = None) -> str:
    """The rule that a Role needs, in the words of a 403's answer.

    Args:
        resource: the plural, with its subresource where there is one: `pods/log`.
        namespace: where; `""` for all of them or for what has none, which takes a ClusterRole.
        *verbs: as RBAC knows them.
        group: the API group, where the resource is not one of this client's.
    """
    listed = ", ".join(f'"{verb}"' for verb in verbs)
    known = _GROUPS.get(resource.partition("/")[0], "") if group is None else group
    kind = f"Role in namespace {namespace!r}" if namespace else "ClusterRole"
    return f'Ask for a {kind} with the rule {{apiGroups: ["{known}"], resources: ["{resource}"], verbs: [{listed}]}}'
