"""One request to the API server: plain JSON in and out, a time limit, one error type.

What can be asked for is in server.py and pods.py; how it gets there, and as whom, in session.py.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

from gpudask.api import Json
from gpudask.api.resource import API_VERSION, GROUP, JOB_PLURAL, PLURAL
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.kube.session import Session
from gpudask.kubecluster.timing import Timing

UNAUTHORIZED = 401
FORBIDDEN = 403
NOT_FOUND = 404
CONFLICT = 409
ENVIRONMENT_STEP = "Check KUBECONFIG and that `kubectl version` answers"
_LOGIN_STEP = "Log in again; `kubectl get gpudaskclusters` should then not be refused"
# Resources outside the core group that this client asks for.
_GROUPS = {
    PLURAL: GROUP,
    JOB_PLURAL: GROUP,
    "ingresses": "networking.k8s.io",
    "selfsubjectaccessreviews": "authorization.k8s.io",
}
_METHODS = {"create": "POST", "patch": "PATCH", "update": "PUT", "delete": "DELETE"}  # the other verbs GET


@dataclass(frozen=True)
class Connection:
    """One API server, and the namespace that calls are about where they name no other."""

    session: Session
    namespace: str

    @property
    def timing(self) -> Timing:
        """Intervals and deadlines."""
        return self.session.timing

    async def close(self) -> None:
        """Close what requests share; nothing can be asked after that, but what is forwarded goes on."""
        await self.session.close()

    async def call(
        self,
        verb: str,
        resource: str,
        name: str = "",
        *,
        subresource: str = "",
        version: str = "",
        namespace: str | None = None,
        body: Json | None = None,
        **options: Any,
    ) -> Json:
        """The answer to one request, as JSON.

        Args:
            verb: as RBAC knows it: get, list, create, update, patch, delete.
            resource: the plural, such as `pods`.
            name: of the object; none for list and create.
            subresource: such as `status`.
            version: such as `apps/v1`; by default ours for clusters and jobs, and `v1` for others.
            namespace: instead of the connection's own; `""` for all, or for what has no namespace.
            body: sent as JSON.
            options: of httpx, such as `params`, `headers`.

        Raises:
            KubeClusterError: the server refuses, cannot be reached, or does not answer within 30 s.
        """
        if body is not None:
            options["content"] = json.dumps(body)
        async with self._open(
            verb, (resource, name, subresource), version=version, namespace=namespace, **options
        ) as response:
            answer: Json = json.loads(await response.aread())
            return answer

    async def lines(
        self,
        verb: str,
        resource: str,
        name: str = "",
        *,
        subresource: str = "",
        version: str = "",
        namespace: str | None = None,
        silence_seconds: float | None = 0,
        **options: Any,
    ) -> AsyncGenerator[str, None]:
        """The lines of an answer as they come: a log that is followed, a watch.

        Args:
            verb: as RBAC knows it: get, watch.
            resource: the plural.
            name: of the object.
            subresource: such as `log`.
            version: as in `call`.
            namespace: as in `call`.
            silence_seconds: a connection that is silent for so long is taken for broken; 0: 30 s, None: none is.
            options: of httpx.

        Raises:
            KubeClusterError: the server refuses, or the connection breaks.
        """
        async with self._open(
            verb,
            (resource, name, subresource),
            version=version,
            namespace=namespace,
            silence_seconds=silence_seconds,
            **options,
        ) as response:
            async for line in response.aiter_lines():
                yield line

    async def chunks(
        self,
        verb: str,
        resource: str,
        name: str,
        *,
        subresource: str,
        silence_seconds: float | None = 0,
        **options: Any,
    ) -> AsyncGenerator[bytes, None]:
        """The bytes of an answer as they come: of a log, whose lines end with a line feed and nothing else.

        The arguments and errors are those of `lines`.
        """
        async with self._open(
            verb, (resource, name, subresource), version="", namespace=None, silence_seconds=silence_seconds, **options
        ) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    async def events(
        self, resource: str, since: str, *, params: dict[str, str], namespace: str | None = None
    ) -> AsyncGenerator[tuple[str, Json], None]:
        """ADDED, MODIFIED or DELETED, and the object, after the version `since`; ends where the server ends it.

        Args:
            resource: the plural.
            since: a resourceVersion.
            params: such as a selector.
            namespace: as in `call`.

        Raises:
            KubeClusterError: the server refuses, or the connection breaks.
        """
        watch_seconds = self.timing.watch_seconds
        params = params | {"watch": "true", "timeoutSeconds": f"{watch_seconds:.0f}", "resourceVersion": since}
        # The server ends a watch by itself; when it does not, the network between went away without a word.
        silence = watch_seconds + self.timing.answer_seconds
        read = self.lines("watch", resource, namespace=namespace, params=params, silence_seconds=silence)
        async with contextlib.aclosing(read) as lines:
            async for line in lines:
                event = json.loads(line)
                if event["type"] == "ERROR":  # 410: the version is too old
                    return
                yield event["type"], event["object"]

    async def version(self) -> Json:
        """The server's version: `gitVersion` and more.

        Raises:
            KubeClusterError: the server refuses or does not answer.
        """
        what, rule = "cannot get the server's version", "Ask for the ClusterRole system:public-info-viewer"
        async with self._answer(what, "GET", "/version", rule) as response:
            answer: Json = json.loads(await response.aread())
            return answer

    @contextlib.asynccontextmanager
    async def _open(
        self, verb: str, what: tuple[str, str, str], *, version: str, namespace: str | None, **options: Any
    ) -> AsyncIterator[httpx.Response]:
        resource, _, subresource = what
        place = self.namespace if namespace is None else namespace
        url = "/".join(part for part in what if part)
        known = version or (API_VERSION if resource in (PLURAL, JOB_PLURAL) else "v1")
        path = f"{path_of(known, place)}/{url}"
        asked = "/".join(part for part in (resource, subresource) if part)
        rule = rbac_step(asked, place, verb, group=version.rpartition("/")[0] if version else None)
        async with self._answer(f"cannot {verb} {url}", _METHODS.get(verb, "GET"), path, rule, **options) as response:
            yield response

    @contextlib.asynccontextmanager
    async def _answer(
        self, what: str, method: str, path: str, missing_rule: str, **options: Any
    ) -> AsyncIterator[httpx.Response]:
        try:
            async with self.session.response(method, path, **options) as response:
                if response.is_error:
                    raise await _refusal(what, response, missing_rule)
                yield response
        except (OSError, httpx.HTTPError, ValueError) as error:
            reason = self.session.reason(error)
            raise KubeClusterError(what, reason=reason, next_step=ENVIRONMENT_STEP, unanswered=True) from error


def path_of(version: str, namespace: str) -> str:
    """The path of an API version on the server, such as `/apis/apps/v1/namespaces/lab`."""
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{base}/namespaces/{namespace}" if namespace else base


def rbac_step(resource: str, namespace: str, *verbs: str, group: str | None = None) -> str:
    """The rule that a Role needs, for the message of a 403.

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


async def _refusal(what: str, response: httpx.Response, missing_rule: str) -> KubeClusterError:
    status = response.status_code
    text = (await response.aread()).decode(errors="replace")
    try:
        reason = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        reason = text.strip() or response.reason_phrase
    steps = {FORBIDDEN: missing_rule, UNAUTHORIZED: _LOGIN_STEP}
    step = steps.get(status, "See what the API server says above")
    return KubeClusterError(what, reason=reason or f"HTTP {status}", next_step=step, status=status)
