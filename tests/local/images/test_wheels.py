"""Wheels are fetched once, also where two commands ask for them at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from local.host.progress import Steps
from local.images import wheels


def test_two_commands_at_once_fetch_the_same_wheels_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GPUDASK_CACHE_DIR", str(tmp_path / "cache"))
    lock = tmp_path / "some.lock"
    lock.write_text("six==1.17.0\n")
    fetched, both_began = [], threading.Barrier(2)

    def download(command: list[str], *, log: Path) -> None:
        destination = Path(command[-1].removeprefix("--dest="))
        destination.mkdir()
        (destination / "six-1.17.0.whl").write_bytes(b"")
        fetched.append(log)

    def fetch() -> Path:
        both_began.wait()
        return wheels.fetch_wheels(lock, Steps())

    monkeypatch.setattr(wheels, "run", download)
    with ThreadPoolExecutor(2) as threads:
        directories = {future.result() for future in [threads.submit(fetch) for _ in range(2)]}

    (directory,) = directories
    assert [path.name for path in directory.iterdir()] == ["six-1.17.0.whl"]
    assert len(fetched) == 1
