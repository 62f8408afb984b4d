"""Credentials for an API server: those of a kubeconfig's user, or of a pod's service account.

They are read at first, and again when the server refuses them or their time is over; for the same server always. A
file is read each time, a plugin (plugin.py) is started.

A kubeconfig's user may act as somebody else: `as`, `as-uid`, `as-groups`, `as-user-extra`. The headers:
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import ssl
import tempfile
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import certifi

from gpudask.api import Json
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.kube.config import Choice
from gpudask.kubecluster.kube.plugin import ALWAYS, Grant, Plugin
from gpudask.kubecluster.timing import Timing

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# What may stand in a header's name (RFC 9110), apart from letters and digits; `%` itself is escaped, too.
_IN_A_NAME = "!#$&'*+-.^_`|~"
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True)
class Credentials:
    """A server's URL, and the credentials for it.

    Attributes:
        server: its URL.
        authorization: the header of that name; empty where a certificate is shown.
        tls: how its certificate is checked and which is shown.
        has_certificate: whether one is shown.
        expires: when they end, where a plugin said so.
        proxy: the URL of the kubeconfig's proxy.
        tls_name: the name in the server's certificate, where it is not the URL's.
        headers: as whom the server is to take the requests, where the kubeconfig names somebody else.
    """

    server: str
    authorization: str
    tls: ssl.SSLContext
    has_certificate: bool = False
    expires: datetime | None = None
    proxy: str | None = None
    tls_name: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Login:
    """The way to the credentials of one user of one server, again and again.

    Args:
        choice: a kubeconfig's context, as first read; None: the pod's own service account.
        timing: intervals and deadlines.

    Attributes:
        choice: the context as it is kept: its certificate authority is in it, wherever its file goes.

    Raises:
        KubeClusterError: the certificate authority's file is missing.
    """

    def __init__(self, choice: Choice | None, timing: Timing) -> None:
        self.choice = choice and _pinned(choice)
        self._timing = timing
        self._is_first = True

    @property
    def starts_plugin(self) -> bool:
        """True if reading starts a program, which may ask a person."""
        return self.choice is not None and _uses_plugin(self.choice.user)

    @property
    def needs_person(self) -> bool:
        """True if that program says that it always does."""
        section = self.choice.user.get("exec") if self.choice is not None and self.starts_plugin else None
        return isinstance(section, dict) and section.get("interactiveMode") == ALWAYS

    async def read(self, *, may_ask: bool = True) -> Credentials:
        """The credentials as they are now.

        Args:
            may_ask: whether a person waits who can answer what a plugin asks.

        Raises:
            KubeClusterError: there are none, a file of them is missing, or the credential plugin fails or does not
                end within `plugin_seconds`.
        """
        if self.choice is None:
            return _of_pod()
        if not self._is_first:
            self.choice = self.choice.renewed()
        self._is_first = False
        choice = self.choice
        headers = impersonation(choice)
        grant = Grant()
        if _uses_plugin(choice.user):
            grant = await Plugin.of(choice).ask(self._timing, may_ask=may_ask)
        found = _of_choice(choice, grant)
        if grant.expires is not None and grant.expires <= self._timing.clock.now():
            grant = replace(grant, expires=None)  # a clock is wrong: the server will say when they end
        return replace(found, expires=grant.expires, headers=headers)


def _uses_plugin(user: Json) -> bool:
    # As kubectl: what is written down goes before a plugin.
    others = ("token", "tokenFile", "username", "client-certificate", "client-certificate-data")
    return bool(user.get("exec")) and not any(user.get(field) for field in others)


def _pinned(choice: Choice) -> Choice:
    """The context with what its certificate authority's file holds."""
    path = choice.cluster.get("certificate-authority")
    if not path or choice.cluster.get("certificate-authority-data"):
        return choice
    data = base64.b64encode(_file(choice, "certificate-authority", path)).decode()
    kept = {field: value for field, value in choice.cluster.items() if field != "certificate-authority"}
    return replace(choice, cluster=kept | {"certificate-authority-data": data})


def _of_pod() -> Credentials:
    try:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        token = (SERVICE_ACCOUNT / "token").read_text("utf-8").strip()
        tls = _context((SERVICE_ACCOUNT / "ca.crt").read_bytes())
    except (OSError, ValueError, KeyError) as error:
        raise KubeClusterError(
            "this pod has no credentials for the API server",
            reason=str(error) or type(error).__name__,
            next_step="Give it a service account, with automountServiceAccountToken: true, or a kubeconfig",
        ) from error
    bracketed = f"[{host}]" if ":" in host else host
    return Credentials(f"https://{bracketed}:{port}", f"Bearer {token}", tls)


def _of_choice(choice: Choice, grant: Grant) -> Credentials:
    cluster, user = choice.cluster, choice.user
    server = cluster.get("server")
    if not isinstance(server, str) or not server:
        raise _wrong(choice, "server", server, "the server's URL", "cluster")
    certificate = _bytes(choice, "client-certificate") or grant.certificate.encode()
    key = _bytes(choice, "client-key") or grant.key.encode()
    try:
        tls = _tls(choice, server)
        if certificate and key:
            _show(tls, certificate, key)
        authorization = _authorization(choice, grant)
        if not authorization and not certificate and (provider := user.get("auth-provider")):
            raise _no_provider(choice, provider)
    except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError
        raise _not_usable(choice, error) from error
    return Credentials(
        server=server,
        authorization=authorization,
        tls=tls,
        has_certificate=bool(certificate and key),
        proxy=str(cluster.get("proxy-url") or "") or None,
        tls_name=str(cluster.get("tls-server-name") or "") or None,
    )


def _authorization(choice: Choice, grant: Grant) -> str:
    user = choice.user
    token = user.get("token") or grant.token
    if user.get("tokenFile"):
        token = _file(choice, "tokenFile", user["tokenFile"]).decode().strip()
    if token:
        return f"Bearer {str(token).strip()}"
    if name := user.get("username"):
        pair = f"{name}:{user.get('password') or ''}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return ""


# ---------------------------------------------------------------------- TLS


def _tls(choice: Choice, server: str) -> ssl.SSLContext:
    cluster = choice.cluster
    if cluster.get("insecure-skip-tls-verify") is True or urlsplit(server).scheme == "http":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
        return tls
    data = cluster.get("certificate-authority-data")
    return _context(_decoded(choice, "certificate-authority-data", data) if data else b"")


def _context(authorities: bytes) -> ssl.SSLContext:
    """TLS that trusts these authorities, as PEM; those of the system where there are none.

    Not `ssl.create_default_context`: from Python 3.13 on that refuses certificate authorities as kubeadm and the
    clouds make them.
    """
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not authorities:
        tls.load_default_certs()
        if not tls.cert_store_stats()["x509_ca"]:  # as Python for macOS comes
            tls.load_verify_locations(certifi.where())
        return tls
    # What people write between certificates need not be ASCII, and OpenSSL takes nothing else.
    found = b"\n".join(_PEM.findall(authorities))
    if not found:
        raise ValueError("the certificate authority's file holds no certificate in PEM format")
    tls.load_verify_locations(cadata=found.decode("ascii"))
    return tls


def _show(tls: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Let TLS show a client certificate: Python reads that from a file only, which is there for this moment."""
    with tempfile.TemporaryDirectory(prefix="gpudask-") as folder:  # for its owner alone
        path = Path(folder) / "both.pem"
        path.write_bytes(certificate + b"\n" + key)
        tls.load_cert_chain(path, password=_no_password)


def _no_password() -> str:
    raise ValueError("its client key is encrypted: write one that is not")  # else OpenSSL asks at the terminal


# ---------------------------------------------------------------------- fields of a kubeconfig


def _bytes(choice: Choice, field: str) -> bytes:
    """What `field` or `field-data` of the user holds, as PEM; empty where there is neither."""
    user = choice.user
    if data := user.get(f"{field}-data"):
        return _decoded(choice, f"{field}-data", data)
    return _file(choice, field, user[field]) if user.get(field) else b""


def _decoded(choice: Choice, field: str, data: Any) -> bytes:
    text = str(data)
    if "-----" in text:  # some write the PEM itself
        return text.encode()
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError) as error:
        raise _not_usable(choice, ValueError(f"{field} is no base64: {error}")) from error


def _file(choice: Choice, field: str, path: Any) -> bytes:
    try:
        return Path(str(path)).read_bytes()
    except FileNotFoundError as error:
        raise KubeClusterError(
            f"context {choice.context!r} of the kubeconfig cannot be used",
            reason=f"its {field} {path} is not there",
            next_step="Put the file there, or correct the kubeconfig",
        ) from error
    except OSError as error:
        raise _not_usable(choice, error) from error


def _not_usable(choice: Choice, error: Exception) -> KubeClusterError:
    return KubeClusterError(
        f"context {choice.context!r} of the kubeconfig has no credentials that can be used",
        reason=str(error) or type(error).__name__,
        next_step=f"Log in again; `kubectl --context {choice.context} version` should then answer",
    )


def _no_provider(choice: Choice, provider: Any) -> KubeClusterError:
    name = provider.get("name") if isinstance(provider, dict) else provider
    return KubeClusterError(
        f"context {choice.context!r} of the kubeconfig cannot be used",
        reason=f"its user's auth-provider {name!r} is a kind of login that Kubernetes has given up for plugins",
        next_step="Write an `exec` section instead: gke-gcloud-auth-plugin (GKE), `kubelogin convert-kubeconfig` (AKS),"
        " `kubectl oidc-login setup` (OIDC)",
    )


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


def _wrong(choice: Choice, field: str, value: Any, wanted: str, whose: str = "user") -> KubeClusterError:
    return KubeClusterError(
        f"context {choice.context!r} of the kubeconfig cannot be used",
        reason=f"its {whose}'s {field} is {value!r}",
        next_step=f"Write {wanted} there",
    )
