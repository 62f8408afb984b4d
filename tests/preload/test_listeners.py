"""Further listeners of a scheduler that runs. tcp at another port stands for UCX, which is not installed here."""

import asyncio
import json

import pytest
from distributed import Worker

from gpudask.preload import listeners
from local.host.ports import free_ports

from .cluster import until
from .test_entry import get, mount, scheduler

UNKNOWN = "unknown address scheme 'nosuch'"


def wish(listen, version="v", **pool):
    return {"protocol": 1, "version": version, "pools": {"gpu": {"accepts": "any", "listen": listen}}, "retiring": []}


async def listening(cluster):
    return (await cluster.demand())["listeners"]


async def answered(cluster, protocol):
    await until(lambda: _is_answered(cluster, protocol), f"the scheduler says where it listens for {protocol}")
    return (await listening(cluster))[protocol]


async def _is_answered(cluster, protocol):
    return protocol in await listening(cluster)


async def test_a_second_listener_is_opened_while_the_scheduler_runs_and_workers_come_by_both(start):
    cluster = await start()
    first = await cluster.add("cpu-0")
    (port,) = free_ports(1)
    address, seen = cluster.scheduler.address, (await cluster.demand())["version"]
    await cluster.post(wish({"tcp": port}))
    assert await answered(cluster, "tcp") == {"port": port, "why": ""}
    assert (await cluster.demand())["version"] != seen, "who polls is told at once"
    assert cluster.scheduler.address == address, "the others go on with the first one"

    second = await Worker(f"tcp://127.0.0.1:{port}", nthreads=1, name="demo-gpu-worker-0-00000", memory_limit=0)
    cluster.workers.append(second)
    made = cluster.client.submit(bytes, 100_000, workers=[second.address], pure=False)
    assert await cluster.client.submit(len, made, workers=[first.address], pure=False) == 100_000
    assert len(await made) == 100_000


async def test_asked_again_it_is_opened_once_and_stays_when_nobody_asks_any_more(start):
    cluster = await start()
    (port,) = free_ports(1)
    tries = cluster.count(cluster.scheduler, "listen")
    for version in "ab":
        await cluster.post(wish({"tcp": port}, version))
        assert await answered(cluster, "tcp") == {"port": port, "why": ""}
    await cluster.post(wish({}, "c"))
    assert await listening(cluster) == {"tcp": {"port": port, "why": ""}}
    assert (len(cluster.scheduler.listeners), tries()) == (2, 1)


async def test_a_protocol_that_the_image_lacks_is_told_and_the_scheduler_lives(start):
    cluster = await start()
    await cluster.add("cpu-0")
    await cluster.post(wish({"nosuch": 8788}))
    answer = await answered(cluster, "nosuch")
    assert answer["port"] == 8788
    assert answer["why"].startswith(f"ValueError: {UNKNOWN}")
    assert (await cluster.demand())["features"]["listen"] == "", "the part works: it is this protocol that lacks"
    assert await cluster.client.submit(sum, [1, 2]) == 3


async def test_an_error_is_told_in_few_characters(start, monkeypatch):
    cluster = await start()

    async def fail(*args, **kwargs):
        raise ModuleNotFoundError("No module named 'distributed_ucxx'" + "x" * 10_000)

    monkeypatch.setattr(cluster.scheduler, "listen", fail)
    await cluster.post(wish({"ucxx": 8788}))
    why = (await answered(cluster, "ucxx"))["why"]
    assert why.startswith("ModuleNotFoundError: No module named 'distributed_ucxx'")
    assert len(why) <= 200


async def test_a_port_that_is_taken_is_tried_again_until_it_is_free(start, monkeypatch):
    monkeypatch.setattr(listeners, "RETRY_SECONDS", 0.05)
    cluster = await start()
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await cluster.post(wish({"tcp": port}))
    assert "in use" in (await answered(cluster, "tcp"))["why"]
    server.close()
    await server.wait_closed()

    async def free():
        return (await listening(cluster))["tcp"] == {"port": port, "why": ""}

    await until(free, "it listens once the port is free")


async def test_what_fails_is_wanted_no_more_and_not_tried_again(start, monkeypatch):
    monkeypatch.setattr(listeners, "RETRY_SECONDS", 0.01)
    cluster = await start()
    await cluster.post(wish({"nosuch": 8788}))
    await answered(cluster, "nosuch")
    await cluster.post(wish({}, "other"))
    await until(lambda: not cluster.preload.listeners._opening, "it gives up")


BAD = [
    ([], "pools.gpu.listen: expected an object, got []"),
    ({"tcp": "8788"}, "pools.gpu.listen.tcp: expected a port below 65536, got '8788'"),
    ({"tcp": True}, "pools.gpu.listen.tcp: expected a port below 65536, got True"),
    ({"tcp": 0}, "pools.gpu.listen.tcp: expected a port below 65536, got 0"),
    ({"tcp://x": 1}, "pools.gpu.listen: expected protocols, got 'tcp://x'"),
]


@pytest.mark.parametrize(("listen", "why"), BAD)
async def test_a_bad_wish_is_refused_by_its_field(start, listen, why):
    cluster = await start()
    assert (await cluster.post(wish(listen), status=400))["error"] == why
    assert await listening(cluster) == {}


async def test_pools_that_do_not_agree_are_refused(start):
    cluster = await start()
    body = wish({"tcp": 1})
    body["pools"]["other"] = {"accepts": "any", "listen": {"tcp": 2}}
    assert "expected 1, as another pool has it, got 2" in (await cluster.post(body, status=400))["error"]


async def test_without_what_it_needs_of_distributed_the_part_is_off_and_the_rest_works(start, monkeypatch):
    monkeypatch.setattr(listeners.Listeners, "attributes", ("no_such_attribute",))
    cluster = await start()
    await cluster.post(wish({"tcp": 8788}))
    answer = await cluster.demand()
    assert answer["features"]["listen"] == "Scheduler.no_such_attribute is missing"
    assert (answer["features"]["demand"], answer["listeners"]) == ("", {})


async def test_the_pools_file_opens_it_before_the_operator_speaks(tmp_path):
    """After a restart workers dial again at once, whether an operator is there or not."""
    (port,) = free_ports(1)
    file = tmp_path / "pools.json"
    file.write_text(json.dumps({"gpu": {"accepts": "any", "listen": {"tcp": port}}}))
    entry = mount(tmp_path / "mounted")
    async with scheduler(tmp_path, entry, GPUDASK_POOLS_FILE=str(file)) as (address, url):

        async def listens():
            return (await get(f"{url}/demand"))["listeners"].get("tcp")

        assert await until(listens, "it listens") == {"port": port, "why": ""}
        assert (await get(f"{url}/demand"))["desired_version"] == ""
        worker = await Worker(f"tcp://127.0.0.1:{port}", nthreads=1, memory_limit=0, host="127.0.0.1")
        assert worker.scheduler.address == f"tcp://127.0.0.1:{port}" != address
        await worker.close()
