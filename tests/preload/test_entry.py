"""The mounted files in a real `dask scheduler --preload`: whatever is wrong with them, the scheduler comes up."""

import asyncio
import contextlib
import io
import os
import sys
import zipfile
from pathlib import Path

import aiohttp
import pytest
from distributed import Client

from gpudask.preload import ARCHIVE, ENTRY, files, packed, sources
from local.host.ports import free_ports

from .cluster import DEADLINE_SECONDS, WORKING, digest, until

HEADERS = {"Authorization": "Bearer secret"}


def mount(folder, **changes):
    """Write the files as the operator mounts them; `changes` replace a module's text."""
    texts = {path: changes.get(Path(path).stem, text) for path, text in sources().items()}
    folder.mkdir()
    for name, content in packed(texts).items():
        (folder / name).write_bytes(content)
    return folder / ENTRY


@contextlib.asynccontextmanager
async def scheduler(tmp_path, entry, *args, **env):
    """Start `dask scheduler` in a process of its own, away from this checkout; yield (address, URL of the routes)."""
    (tmp_path / "token").write_text(digest("secret"))
    port, http_port = free_ports(2)
    command = [sys.executable, "-P", "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dashboard-address", f"127.0.0.1:{http_port}", "--preload", str(entry), *args]
    environment = os.environ | {"GPUDASK_TOKEN_SHA256_FILE": str(tmp_path / "token")} | env
    with (tmp_path / "log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, cwd=tmp_path, stdout=log, stderr=asyncio.subprocess.STDOUT
        )
        try:
            yield f"tcp://127.0.0.1:{port}", f"http://127.0.0.1:{http_port}/gpudask/v1"
        finally:
            print((tmp_path / "log").read_text())  # seen when the test fails
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await asyncio.wait_for(process.wait(), DEADLINE_SECONDS)


async def get(url):
    """Return the JSON of the first answer that is one: the scheduler takes a while to come up."""
    async with aiohttp.ClientSession(headers=HEADERS) as http:

        async def answer():
            try:
                async with http.get(url) as response:
                    return await response.json() if response.status == 200 else None
            except aiohttp.ClientError:
                return None

        return await until(answer, url, pause_seconds=0.1)  # beside it a process starts, which needs the CPU


def test_the_files_are_small_and_complete():
    assert files().keys() == {ENTRY, ARCHIVE}
    assert sum(len(content) for content in files().values()) < 120 * 1024  # one for each namespace, in etcd
    with zipfile.ZipFile(io.BytesIO(files()[ARCHIVE])) as archive:
        held = {name: archive.read(name).decode() for name in archive.namelist()}
    assert held == {path: text for path, text in sources().items() if path != ENTRY}
    assert "gpudask_preload/__init__.py" in held
    assert "gpudask_preload/entry.py" not in held


def test_the_same_sources_are_the_same_bytes_at_any_time(monkeypatch):
    before = packed(sources())
    monkeypatch.setattr("time.time", lambda: 2_000_000_000.0)
    assert packed(dict(reversed(sources().items()))) == before
    assert packed(sources() | {"gpudask_preload/more.py": ""}) != before


def test_the_operator_can_read_the_sources_without_distributed(tmp_path):
    import subprocess

    code = "import sys; sys.modules['distributed'] = None; import gpudask.preload as p; assert p.files()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


@pytest.mark.parametrize("flags", [["--no-dashboard"], ["--dashboard-prefix", "/proxy/x"]])
async def test_the_routes_are_there_with_any_dashboard(tmp_path, flags):
    async with scheduler(tmp_path, mount(tmp_path / "mounted"), *flags) as (address, url):
        answer = await get(f"{url}/demand")
        assert answer["features"] == WORKING
        assert answer["desired_version"] == ""
        async with Client(address, asynchronous=True) as client:
            future = client.submit(sum, [1], resources={"GPU": 1})
            await until(lambda: _has_demand(url))
            del future


async def _has_demand(url):
    return (await get(f"{url}/demand"))["demand"]


async def test_preloads_of_the_users_configuration_are_loaded_and_one_that_fails_harms_nobody(tmp_path):
    good, bad = tmp_path / "good_preload.py", tmp_path / "bad_preload.py"
    bad.write_text("raise RuntimeError('of the user')")
    good.write_text(
        "from pathlib import Path\n"
        "def dask_setup(scheduler): Path('setup').write_text(scheduler.address)\n"
        "def dask_teardown(scheduler): Path('teardown').touch()\n"
    )
    entry = mount(tmp_path / "mounted")
    configured = str([str(bad), str(good)])
    async with scheduler(tmp_path, entry, DASK_DISTRIBUTED__SCHEDULER__PRELOAD=configured) as (address, url):
        setup = tmp_path / "setup"
        await until(lambda: setup.exists() and setup.read_text() == address)  # it is there before its text is
        assert (await get(f"{url}/health"))["error"] == ""
    assert (tmp_path / "teardown").exists()


@pytest.mark.parametrize("broken", ["def (", "async def install(s): raise OSError('late')"])
async def test_a_broken_module_leaves_the_scheduler_up_with_the_traceback_on_health(tmp_path, broken):
    async with scheduler(tmp_path, mount(tmp_path / "mounted", setup=broken)) as (address, url):
        health = await get(f"{url}/health")
        assert "Traceback" in health["error"]
        assert broken.partition(": ")[2] in health["error"], "with the lines of the sources, which stand in an archive"
        assert health["features"].keys() == WORKING.keys()
        assert all(health["features"].values())
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{url}/health") as response,
            Client(address, asynchronous=True) as client,
        ):
            assert response.status == 401
            assert client.status == "running"


async def test_importing_the_entry_has_no_effect_and_needs_no_package(tmp_path, monkeypatch):
    from distributed.utils import import_file

    entry = mount(tmp_path / "mounted")
    (tmp_path / "mounted" / ARCHIVE).write_bytes(b"no archive")
    path = list(sys.path)
    for _ in range(3):
        import_file(str(entry))
    assert sys.path == path
    assert "gpudask_preload" not in sys.modules
