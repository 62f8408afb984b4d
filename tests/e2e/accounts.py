"""ServiceAccounts with the rights that a test names, and no others."""

from __future__ import annotations

from gpudask.api import Json

from collections.abc import Sequence

from tests.e2e.space import Space


def account(space: Space, name: str, rules: Sequence[Json], *, cluster_rules: Sequence[Json] = ()) -> str:
    """Make a ServiceAccount with these rights in its namespace, and `cluster_rules` in all. Returns its name.

    The rules are a Role's: `apiGroups`, `resources`, `verbs`. Rights in all namespaces outlive the test, bound to an
    account that does not.
    """
    namespace = space.kubectl.namespace
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    space.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    everywhere = f"{namespace}-{name}"
    for kind, object_name, granted in (("Role", name, rules), ("ClusterRole", everywhere, cluster_rules)):
        if granted:
            head = {"apiVersion": f"{group}/v1", "metadata": {"name": object_name}}
            space.apply(head | {"kind": kind, "rules": list(granted)})
            role = {"apiGroup": group, "kind": kind, "name": object_name}
            space.apply(head | {"kind": f"{kind}Binding", "subjects": [subject], "roleRef": role})
    return name
