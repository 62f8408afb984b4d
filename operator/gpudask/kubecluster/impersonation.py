"""A kubeconfig's user who acts as somebody else: `as`, `as-uid`, `as-groups`, `as-user-extra`. Pure.

The headers: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.kubeconfig import Choice

# What may stand in a header's name (RFC 9110), apart from letters and digits; `%` itself is escaped, too.
_IN_A_NAME = "!#$&'*+-.^_`|~"


def headers(choice: Choice) -> tuple[tuple[str, str], ...]:
    """The headers that ask the API server to take a request for somebody else's; none where nobody is named.

    Raises:
        KubeClusterError: a field has the wrong shape, or says what somebody is and not who.
    """
    user = choice.user
    uid, groups, extra = user.get("as-uid"), user.get("as-groups") or [], user.get("as-user-extra") or {}
    _check(choice, "as", user.get("as"), "a user's name")
    _check(choice, "as-uid", uid, "a user's uid")
    if not isinstance(groups, list):
        raise _wrong(choice, "as-groups", groups, "a list of groups")
    if not isinstance(extra, dict) or not all(isinstance(values, list) for values in extra.values()):
        raise _wrong(choice, "as-user-extra", extra, "a list of words for each key")
    if not user.get("as"):
        said = [field for field in ("as-uid", "as-groups", "as-user-extra") if user.get(field)]
        if said:
            raise KubeClusterError(
                f"context {choice.context!r} of the kubeconfig cannot be used",
                reason=f"its user has {', '.join(said)}, but no `as`",
                next_step="Name the user to act as in `as`, or remove them",
            )
        return ()
    found = [("Impersonate-User", str(user["as"]))]
    found += [("Impersonate-Uid", str(uid))] if uid else []
    found += [("Impersonate-Group", str(group)) for group in groups]
    found += [
        (f"Impersonate-Extra-{quote(str(key), safe=_IN_A_NAME)}", str(value))
        for key, values in extra.items()
        for value in values
    ]
    return tuple(found)


def _check(choice: Choice, field: str, value: Any, wanted: str) -> None:
    if value is not None and not isinstance(value, str):
        raise _wrong(choice, field, value, wanted)


def _wrong(choice: Choice, field: str, value: Any, wanted: str) -> KubeClusterError:
    return KubeClusterError(
        f"context {choice.context!r} of the kubeconfig cannot be used",
        reason=f"its user's {field} is {value!r}",
        next_step=f"Write {wanted} there",
    )
