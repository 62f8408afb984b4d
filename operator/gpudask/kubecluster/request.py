"""One request to the API server over kr8s: plain JSON in and out, a time limit, one error type.

kr8s' object layer is not used: it asks for the whole API's discovery first, and knows no server-side apply.
What can be asked for is in server.py and pods.py.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import kr8s
from kr8s.asyncio import Api

from gpudask.api.resource import API_VERSION, PLURAL
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.rights import rbac_step

# kr8s warns of each Kubernetes newer than itself; the calls below have been stable for years.
warnings.filterwarnings("ignore", message="Kubernetes version .* is not supported", module="kr8s")

Json = dict[str, Any]
FORBIDDEN = 403
NOT_FOUND = 404
CONFLICT = 409
GONE = 410
TIMEOUT_SECONDS = 30
ENVIRONMENT_STEP = "Check KUBECONFIG and that `kubectl version` answers"
_METHODS = {"create": "POST", "patch": "PATCH", "update": "PUT", "delete": "DELETE"}  # the other verbs GET


@dataclass(frozen=True)
class Connection:
    """One API server, and the namespace that calls are about where they name no other."""

    api: Api
    namespace: str

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
            version: such as `apps/v1`; by default ours for our resource and `v1` for others.
            namespace: instead of the connection's own; `""` for all, or for what has no namespace.
            body: sent as JSON.
            options: of httpx, such as `params`, `headers`.

        Raises:
            KubeClusterError: the server refuses, cannot be reached, or does not answer within 30 s.
        """
        if body is not None:
            options["content"] = json.dumps(body)
        async with self._open(
            verb,
            (resource, name, subresource),
            version=version,
            namespace=namespace,
            stream=False,
            timeout=TIMEOUT_SECONDS,
            **options,
        ) as response:
            answer: Json = response.json()
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
        **options: Any,
    ) -> AsyncGenerator[str, None]:
        """The lines of an answer as they come: a log that is followed, a watch. Without a time limit between them.

        Raises:
            KubeClusterError: the server refuses, or the connection breaks.
        """
        limits = httpx.Timeout(TIMEOUT_SECONDS, read=None)
        async with self._open(
            verb,
            (resource, name, subresource),
            version=version,
            namespace=namespace,
            stream=True,
            timeout=limits,
            **options,
        ) as response:
            async for line in response.aiter_lines():
                yield line

    @contextlib.asynccontextmanager
    async def _open(
        self,
        verb: str,
        what: tuple[str, str, str],
        *,
        version: str,
        namespace: str | None,
        **options: Any,
    ) -> AsyncIterator[httpx.Response]:
        resource, _, subresource = what
        place = self.namespace if namespace is None else namespace
        url = "/".join(part for part in what if part)
        call = self.api.call_api(
            _METHODS.get(verb, "GET"),
            version=version or (API_VERSION if resource == PLURAL else "v1"),
            namespace=place or None,
            url=url,
            **options,
        )
        try:
            async with call as response:
                yield response
        except kr8s.ServerError as error:
            asked = "/".join(part for part in (resource, subresource) if part)
            group = version.rpartition("/")[0] if version else None
            raise _refusal(verb, url, error, rbac_step(asked, place, verb, group=group)) from error
        except (OSError, httpx.HTTPError, kr8s.APITimeoutError, ValueError) as error:
            raise KubeClusterError(f"cannot {verb} {url}", reason=words(error), next_step=ENVIRONMENT_STEP) from error


def words(error: BaseException) -> str:
    """What an error says, or at least its name."""
    return str(error) or type(error).__name__


def _refusal(verb: str, url: str, error: kr8s.ServerError, missing_rule: str) -> KubeClusterError:
    status = error.response.status_code if error.response is not None else 0
    step = missing_rule if status == FORBIDDEN else "See what the API server says above"
    return KubeClusterError(f"cannot {verb} {url}", reason=words(error), next_step=step, status=status)
