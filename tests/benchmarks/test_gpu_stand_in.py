"""The GPU benchmark's dry run: NumPy under CuPy's name does what the tasks ask, and pods ask no driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from distributed.protocol import deserialize, serialize

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import manifests, stand_in
from benchmarks.gpu.programs import work
from benchmarks.gpu.runner import Runner


@pytest.fixture(autouse=True)
def cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in, as pods of a dry run import it."""
    monkeypatch.setitem(sys.modules, "cupy", stand_in)


def test_the_tasks_run():
    assert work.warm(0, 64)
    assert work.first(1.0)["mean"] == pytest.approx(1.5, abs=0.01)
    assert work.refine(work.load(0, 800, 1), 2.0, 64, 2).shape == (100,)
    assert work.seconds_of("chain", 64, 2) > 0
    assert work.busy(0.05, 64) >= 0.05


def test_an_array_goes_to_another_worker_as_what_it_is():
    header, frames = serialize(work.hold(3, 800))
    came = deserialize(header, frames)
    assert work.look(came) == (True, 800, 3.0)
    assert work.look(stand_in.asnumpy(came))[0] is False


def test_a_copy_from_one_device_to_another_arrives(tmp_path: Path):
    arguments = [sys.executable, "-m", "benchmarks.gpu.programs.peer_copy", "--shrink=1000", "--repeats=1"]
    root = Path(command.__file__).parents[2]
    (tmp_path / "cupy.py").write_text(manifests.STAND_IN_CUPY)
    done = subprocess.run(
        arguments, cwd=root, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith('RESULT {"how": "CuPy peer copy'), done.stderr


class Taking:
    """A kubectl that takes everything."""

    namespace = "any"

    def __init__(self) -> None:
        self.applied: list[Any] = []

    def apply(self, manifest: Any) -> None:
        self.applied.append(manifest)

    def __call__(self, *_: str) -> str:
        return ""


def test_every_part_of_it_is_carried():
    kubectl: Any = Taking()
    Runner(kubectl, "image", {}, None, gpus=1, repeats=1, stand_in=True).prepare()
    volume = manifests.with_programs({})["spec"]["volumes"][0]["configMap"]["items"]
    (data,) = (body["data"] for body in kubectl.applied if body["kind"] == "ConfigMap")
    assert {item["key"] for item in volume} == data.keys()
    assert data["stand_in.py"] == Path(stand_in.__file__).read_text()
    assert data["stand_in_cupy.py"] == manifests.STAND_IN_CUPY


def test_a_pool_of_a_dry_run_is_small_and_asks_no_driver():
    gpu = manifests.without_devices(manifests.gpu_pool(replicas=2))
    assert {item["name"] for item in gpu["env"]} == {"CUDA_VISIBLE_DEVICES", "DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC"}
    cpu = manifests.without_devices(manifests.cpu_pool(1, 8))
    assert (cpu["nthreads"], cpu["resources"]["cpu"]) == (8, "100m")
    assert "env" not in cpu


def test_a_dry_run_keeps_no_figure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "argv", ["gpu", "--stand-in", "--json", "out.json"])
    with pytest.raises(SystemExit):
        command.main()
    assert "--stand-in measures nothing" in capsys.readouterr().err
