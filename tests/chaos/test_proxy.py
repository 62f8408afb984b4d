"""The proxy passes on what it is asked, and breaks what it is told to, on a real API server."""

from __future__ import annotations

from gpudask.api import Json

import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from threading import Event, Timer
from typing import Any

import pytest

from local.clusters.api_server import ApiServer
from tests.chaos.proxy import Proxy
from tests.kubectl import Kubectl

pytestmark = pytest.mark.api
_SECONDS = 60  # by then an answer has begun, also on a busy machine
PATH = "/api/v1/namespaces/default/configmaps"
WATCH = f"{PATH}?watch=true&resourceVersion=0"  # from what a young API server has in its cache, which may lag


class Client:
    """One that speaks to the proxy as a pod does: by its Service's address, and with a token."""

    def __init__(self, proxy: Proxy, server: ApiServer, token: str) -> None:
        endpoints = server.control_plane.endpoints
        self._address = endpoints.address, proxy.port
        self._tls = ssl.create_default_context(cafile=server.control_plane.pki.authority)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, path: str, method: str = "GET", body: Json | None = None) -> http.client.HTTPResponse:
        connection = http.client.HTTPSConnection(*self._address, timeout=_SECONDS, context=self._tls)
        connection.request(method, path, json.dumps(body) if body else None, self._headers)
        return connection.getresponse()


@pytest.fixture
def proxy(api_server: ApiServer) -> Iterator[Proxy]:
    server: Any = api_server  # of a cluster the proxy knows the control plane alone
    with Proxy.listening(server, seed=1) as made:
        yield made


@pytest.fixture
def client(proxy: Proxy, api_server: ApiServer, kubectl: Kubectl) -> Client:
    account, binding = f"chaos-{proxy.port}", f"chaos-{proxy.port}"
    kubectl("create", "serviceaccount", account)
    kubectl(
        "create", "clusterrolebinding", binding, "--clusterrole=cluster-admin", f"--serviceaccount=default:{account}"
    )
    return Client(proxy, api_server, kubectl("create", "token", account).stdout.strip())


def test_what_is_asked_is_answered(client: Client):
    assert json.load(client.ask(PATH))["kind"] == "ConfigMapList"


def test_requests_are_refused_and_then_answered_again(client: Client, proxy: Proxy):
    proxy.weather.refused = (429, 1.0)
    refused = client.ask(PATH)
    assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
    proxy.weather.refused = (0, 0.0)
    assert client.ask(PATH).status == 200


def test_a_write_is_done_whose_answer_is_lost(client: Client, proxy: Proxy, kubectl: Kubectl):
    proxy.weather.losing = 1.0
    name = f"lost-{proxy.port}"
    with pytest.raises((http.client.HTTPException, OSError)):
        client.ask(PATH, "POST", {"metadata": {"name": name}})
    assert kubectl.attempt("get", "configmap", name).returncode == 0


def test_a_watch_tells_what_happens_and_ends_with_410(client: Client, proxy: Proxy, kubectl: Kubectl):
    watch = client.ask(WATCH)
    kubectl("create", "configmap", f"seen-{proxy.port}")
    while (event := json.loads(watch.readline()))["object"]["metadata"].get("name") != f"seen-{proxy.port}":
        assert event["type"] == "ADDED", str(event)
    assert proxy.expire() == 1
    assert json.loads(watch.readline())["object"]["code"] == 410


def test_a_watch_that_is_behind_tells_late(client: Client, proxy: Proxy, kubectl: Kubectl):
    kubectl("create", "configmap", f"late-{proxy.port}")  # else there is nothing to tell
    proxy.weather.behind = True
    is_over = Event()

    def catch_up() -> None:
        is_over.set()
        proxy.weather.behind = False

    Timer(1.0, catch_up).start()
    assert json.loads(client.ask(WATCH).readline())["type"] == "ADDED"
    assert is_over.is_set()


def test_the_clock_is_another_one(client: Client, proxy: Proxy):
    proxy.weather.clock_ahead = 1800.0
    before = int(time.time())  # a Date has whole seconds
    told = parsedate_to_datetime(client.ask(PATH).headers["Date"]).timestamp()
    assert before <= told - 1800.0 <= time.time()


def test_every_connection_is_cut(client: Client, proxy: Proxy, kubectl: Kubectl):
    kubectl("create", "configmap", f"cut-{proxy.port}")
    watch = client.ask(WATCH)
    watch.readline()
    assert proxy.cut() >= 1
    with contextlib.suppress(http.client.HTTPException, OSError):
        while watch.readline():
            pass
    assert watch.readline() == b"", "it ended"
