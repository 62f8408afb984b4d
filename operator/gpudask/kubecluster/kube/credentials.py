"""Credentials for an API server, read by kr8s from a kubeconfig's user or a pod's service account.

Each reading gives a value of its own: kr8s' object is changed in place while it is read again, and for a moment knows
no server. Reading may start a credential plugin, the program of a cloud that makes a token.

A kubeconfig's user may act as somebody else: `as`, `as-uid`, `as-groups`, `as-user-extra`. The headers:
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import contextlib
import shlex
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
from kr8s.asyncio import Api

from gpudask.api import Json
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.kube.config import Choice
from gpudask.kubecluster.timing import Timing

# What may stand in a header's name (RFC 9110), apart from letters and digits; `%` itself is escaped, too.
_IN_A_NAME = "!#$&'*+-.^_`|~"
_NO_FILE = "(no kubeconfig)"  # kr8s would look for one by itself; where what it is given is missing, it asks the pod
_WRITTEN = {"client-key": "client_key_file", "client-certificate": "client_cert_file"}


@dataclass(frozen=True)
class Credentials:
    """A server's URL, and the credentials for it.

    Attributes:
        server: its URL.
        token: empty where a certificate is shown.
        tls: how its certificate is checked and which is shown; True: as any web server's.
        proxy: the URL of the kubeconfig's proxy.
        tls_name: the name in the server's certificate, where it is not the URL's.
        headers: as whom the server is to take the requests, where the kubeconfig names somebody else.
    """

    server: str
    token: str
    tls: ssl.SSLContext | bool
    proxy: str | None = None
    tls_name: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


async def read(choice: Choice | None, timing: Timing) -> Credentials:
    """The credentials of a kubeconfig's context, or of the pod that this runs in where there is none.

    Raises:
        KubeClusterError: there are none, a file of them is missing, or the credential plugin fails or does not end
            within `plugin_seconds`.
    """
    config = _one_context(choice) if choice else _NO_FILE
    api = Api(bypass_factory=True, kubeconfig=config, context=choice.context if choice else None)
    try:
        # anyio's limit, not asyncio's: anyio's processes end with it.
        with anyio.fail_after(timing.plugin_seconds):
            await api.auth.reauthenticate()
        tls = await api.auth.ssl_context()
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise _not_read(choice, error, timing.plugin_seconds) from error
    finally:
        _remove_written(api, choice.user if choice else {})
    return Credentials(
        server=str(api.auth.server),
        token=(api.auth.token or "").strip(),
        tls=tls,
        proxy=api.auth.proxy,
        tls_name=api.auth.tls_server_name,
        headers=impersonation(choice) if choice else (),
    )


def _remove_written(api: Api, user: Json) -> None:
    """kr8s puts a key that is in the kubeconfig, or comes from a plugin, in a file, anew at each reading."""
    for field, attribute in _WRITTEN.items():
        written = getattr(api.auth, attribute)
        if written and str(written) != user.get(field):
            with contextlib.suppress(OSError):
                Path(written).unlink()


def _one_context(choice: Choice) -> Json:
    """The kubeconfig's part that is in force, with what kr8s does not read itself: the token that lies in a file."""
    for part in (choice.cluster, choice.user):
        for field in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
            if part.get(field) and not Path(part[field]).is_file():
                raise KubeClusterError(
                    f"context {choice.context!r} of the kubeconfig cannot be used",
                    reason=f"its {field} {part[field]} is not there",
                    next_step="Put the file there, or correct the kubeconfig",
                )
    user = dict(choice.user)
    if user.get("tokenFile"):
        try:
            user["token"] = Path(user["tokenFile"]).read_text().strip()
        except (OSError, ValueError) as error:
            raise _not_read(choice, error) from error
    chosen = {"cluster": "cluster", "user": "user", "namespace": choice.namespace}
    return {
        "current-context": choice.context,
        "contexts": [{"name": choice.context, "context": chosen}],
        "clusters": [{"name": "cluster", "cluster": choice.cluster}],
        "users": [{"name": "user", "user": user}],
    }


def _not_read(choice: Choice | None, error: Exception, plugin_seconds: float = 0) -> KubeClusterError:
    if choice is None:
        return KubeClusterError(
            "this pod has no credentials for the API server",
            reason=str(error) or type(error).__name__,
            next_step="Give it a service account, with automountServiceAccountToken: true, or a kubeconfig",
        )
    if plugin := choice.user.get("exec"):
        return _plugin_failed(choice.context, plugin, error, plugin_seconds)
    return KubeClusterError(
        f"context {choice.context!r} of the kubeconfig has no credentials that can be used",
        reason=str(error) or type(error).__name__,
        next_step=f"Log in again; `kubectl --context {choice.context} version` should then answer",
    )


def _plugin_failed(context: str, plugin: Json, error: Exception, plugin_seconds: float) -> KubeClusterError:
    command = str(plugin.get("command", ""))
    line = shlex.join([command, *map(str, plugin.get("args") or [])])
    install = str(plugin.get("installHint") or f"Install {command!r}, which your kubeconfig starts for a token").strip()
    run = f"Run it by hand to see what it wants: {line}"
    if isinstance(error, TimeoutError):
        reason, step = f"{command!r} did not end within {plugin_seconds:g} s", run
    elif isinstance(error, FileNotFoundError):
        reason, step = f"{command!r} is not installed, or not on PATH", f"{install}, or put it on PATH"
    elif isinstance(error, OSError):
        reason, step = f"{command!r} cannot be started: {error.strerror or error}", install
    elif isinstance(error, RuntimeError):
        reason, step = f"{command!r} says: {_plugin_message(error)}", run
    else:
        reason, step = f"{command!r} gave no token and no certificate ({type(error).__name__}: {error})", run
    return KubeClusterError(f"no credentials for context {context!r} of the kubeconfig", reason=reason, next_step=step)


def _plugin_message(error: RuntimeError) -> str:
    """The plugin's standard error, after kr8s' own line."""
    first, _, rest = str(error).partition("\n")
    return rest.strip() or first


def impersonation(choice: Choice) -> tuple[tuple[str, str], ...]:
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
