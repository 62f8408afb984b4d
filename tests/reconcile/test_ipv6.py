"""The operator in a Kubernetes that has IPv6 alone: it polls schedulers and is probed there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gpudask.clients.flow_control import FairRateLimiter
from gpudask.clients.scheduler import SchedulerClient
from gpudask.handlers import Health
from gpudask.planning.observed.parser import parse_pod
from gpudask.reconcile import demand_feed
from gpudask.reconcile.demand_feed import DemandFeed
from gpudask.reconcile.operator import Operator
from gpudask.reconcile.supervisor import Supervisor
from gpudask.settings import Settings
from local.host.ports import free_ports
from tests.builders import a_manifest, a_pool
from tests.planning.builders import cluster, scheduler_pod, stored
from tests.scaling.test_demand import ANSWER


@pytest.mark.parametrize("ip", ["::1", "127.0.0.1"])
async def test_a_scheduler_is_heard_and_told_at_its_address(ip: str, monkeypatch: pytest.MonkeyPatch):
    hosts: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        hosts.append(request.host)
        if request.method == "POST":
            return web.json_response({"protocol": 1, "refused": []})
        if len(hosts) > 1:
            await asyncio.sleep(60)
        return web.json_response(ANSWER)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, ip, 0).start()
    port = runner.addresses[0][1]
    monkeypatch.setattr(demand_feed, "DASHBOARD_PORT", port)
    schedulers, heard = SchedulerClient(), asyncio.Event()
    context: Any = SimpleNamespace(
        clock=lambda: 0.0,
        schedulers=schedulers,
        token=lambda _: "token",
        supervisor=Supervisor(),
        counts_limiter=FairRateLimiter(100.0),
        answers_limiter=FairRateLimiter(100.0),
    )
    feed = DemandFeed(context, stored(a_manifest()), lambda **_: heard.set())
    try:
        feed.follow(replace(scheduler_pod(cluster(a_pool())), ip=ip))
        await asyncio.wait_for(heard.wait(), 60)
        assert feed.demand is not None
        assert await feed.send_desired({}, [], {})
        assert set(hosts) == {f"[::1]:{port}" if ip == "::1" else f"127.0.0.1:{port}"}
    finally:
        feed.stop()
        await schedulers.close()
        await runner.cleanup()


@pytest.mark.parametrize("host", ["[::1]", "127.0.0.1"])
async def test_probes_are_answered_in_both_families(host: str):
    (port,) = free_ports(1, host="")  # 0 would be a port for each family
    health = Health(Operator(Settings()))
    await health.start(port)
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/livez") as got:
            assert got.status == 200
    finally:
        await health.stop()


@pytest.mark.parametrize(
    ("written", "ip"),
    [
        ("fd00::7", "fd00::7"),
        ("10.0.0.7", "10.0.0.7"),
        ("FD00:0::7", "fd00::7"),
        ("", ""),
        ("fe80::1%eth0", ""),
        ("evil.example", ""),
        ("10.0.0.7/admin?", ""),
        ("1@10.0.0.7", ""),
    ],
)
def test_what_is_no_address_is_not_dialled(written: str, ip: str):
    metadata = {"uid": "u", "name": "n", "namespace": "d", "resourceVersion": "1"}
    assert parse_pod({"metadata": metadata, "status": {"podIP": written}}).ip == ip
