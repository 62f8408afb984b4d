"""`%%gpudask` in IPython's own shell: what comes back, what stays for the next cell, and how it ends."""

import pandas as pd
import pytest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from distributed import Client
from IPython.core.interactiveshell import InteractiveShell

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster.on_gpu import cells
from tests.eventually import eventually
from tests.kubecluster.on_gpu.conftest import WORKER, Pods

pytestmark = pytest.mark.dask


@pytest.fixture(autouse=True)
def _nobodys_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


@pytest.fixture
def shell(one_gpu: KubeCluster) -> Iterator[InteractiveShell]:
    """A notebook's shell with the extension and one cluster."""
    with a_shell(one_gpu) as made:
        yield made


@contextmanager
def a_shell(cluster: KubeCluster) -> Iterator[InteractiveShell]:
    InteractiveShell.clear_instance()
    made = InteractiveShell.instance()
    assert made.history_manager is not None
    made.history_manager.enabled = False  # nobody's own
    made.user_ns["cluster"] = cluster
    assert made.run_line_magic("load_ext", "gpudask") is None
    try:
        yield made
    finally:
        made.run_line_magic("unload_ext", "gpudask")
        InteractiveShell.clear_instance()


def cell(shell: InteractiveShell, text: str) -> None:
    shell.run_cell(text).raise_error()


def left_on_the_worker(cluster: KubeCluster) -> int:
    with Client(cluster) as client:
        found = client.run(lambda dask_worker: len(dask_worker.__dict__.get("gpudask_namespaces", {})))
        return sum(found.values())


def test_names_come_back_unless_they_need_a_device_and_the_next_cell_sees_both(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
):
    cell(
        shell,
        "%%gpudask\nimport device_frames, pandas as pd\n"
        "frame = device_frames.to_device(pd.DataFrame({'v': [1, 2]}))\nnested = [{'in': frame}]\nn = len(frame)\n",
    )
    assert shell.user_ns["n"] == 2
    assert "frame" not in shell.user_ns
    assert "nested" not in shell.user_ns
    said = capsys.readouterr().out
    assert f"on worker {WORKER}: frame (device_frames.DeviceFrame needs a device)" in said

    cell(shell, "%%gpudask\nback = device_frames.to_host(frame * n)\n")
    pd.testing.assert_frame_equal(shell.user_ns["back"], pd.DataFrame({"v": [2, 4]}))


def test_names_of_the_notebook_are_sent(shell: InteractiveShell):
    cell(shell, "a = 20\ndef add(x):\n    return x + a\n")
    cell(shell, "%%gpudask add a\nb = add(1)\n")
    assert shell.user_ns["b"] == 21
    with pytest.raises(KubeClusterError, match="no such name"):
        cell(shell, "%%gpudask nothing\nc = 1\n")


def test_a_cell_computes_on_the_cluster_with_its_only_gpu(shell: InteractiveShell):
    cell(
        shell,
        "%%gpudask\nfrom distributed import get_client\ndef f(n):\n    return n + 1\n"
        "x = get_client().submit(f, 41, resources={'GPU': 1}).result()\n",
    )
    assert shell.user_ns["x"] == 42
    assert shell.user_ns["f"](1) == 2  # a function of a cell works in the notebook, too


def test_the_last_expression_is_shown_as_the_worker_shows_it(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
):
    cell(shell, "%%gpudask\nprint('printed')\n6 * 7\n")
    assert capsys.readouterr().out.split() == ["printed", "42"]
    cell(shell, "%%gpudask\n6 * 7;\n")
    assert capsys.readouterr().out == ""


def test_an_error_has_the_cells_line_and_what_was_assigned_before_it(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(ZeroDivisionError):
        cell(shell, "%%gpudask\nbefore = 1\n1 / 0\n")
    assert shell.user_ns["before"] == 1
    assert "1 / 0" in capsys.readouterr().out


def test_what_cannot_be_sent_stays_and_says_why(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]):
    cell(shell, "%%gpudask\nimport threading\nlock = threading.Lock()\n")
    assert "lock (lock cannot be sent: " in capsys.readouterr().out
    cell(shell, "%%gpudask\nis_free = lock.acquire()\n")
    assert shell.user_ns["is_free"] is True


def test_names_too_large_stay(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cells, "MOST_BYTES", 10_000)
    cell(shell, "%%gpudask\nsmall, large = b'x', bytes(20_000)\n")
    assert shell.user_ns["small"] == b"x"
    assert "large" not in shell.user_ns


def test_the_line_magic_tells_what_stays_and_frees_it(
    shell: InteractiveShell, one_gpu: KubeCluster, capsys: pytest.CaptureFixture[str]
):
    cell(shell, "%%gpudask\nimport threading\nlock = threading.Lock()\n")
    assert left_on_the_worker(one_gpu) == 1
    capsys.readouterr()
    cell(shell, "%gpudask")
    assert f"on worker {WORKER}: lock (" in capsys.readouterr().out
    cell(shell, "%gpudask --release")
    eventually(lambda: left_on_the_worker(one_gpu) == 0, "the namespace is freed")
    cell(shell, "%gpudask")
    assert "nothing is on a worker" in capsys.readouterr().out


def test_unloading_frees_the_namespace_and_takes_the_magic_back(shell: InteractiveShell, one_gpu: KubeCluster):
    cell(shell, "%%gpudask\na = 1\n")
    shell.run_line_magic("unload_ext", "gpudask")
    eventually(lambda: left_on_the_worker(one_gpu) == 0, "the namespace is freed")
    assert shell.find_cell_magic("gpudask") is None
    shell.run_line_magic("load_ext", "gpudask")


def test_a_namespace_without_cells_ends_and_the_next_cell_says_so(shell: InteractiveShell, one_gpu: KubeCluster):
    cell(shell, "%%gpudask --idle 3s\na = 1\n")
    eventually(lambda: left_on_the_worker(one_gpu) == 0, "the namespace has ended")
    with pytest.raises(KubeClusterError, match=r"names of this notebook .* are gone"):
        cell(shell, "%%gpudask\nb = a\n")
    cell(shell, "%%gpudask\nb = 2\n")
    assert shell.user_ns["b"] == 2


def test_the_loss_of_the_worker_names_what_is_lost(own_gpu: KubeCluster, pods: Pods):
    with a_shell(own_gpu) as shell:
        cell(shell, "%%gpudask\nimport threading\nlock = threading.Lock()\n")
        pods.add("demo-gpu-worker-1-00000")
        pods.kill(WORKER)
        with pytest.raises(KubeClusterError, match=r"are gone \(lock\)"):
            cell(shell, "%%gpudask\nlock.acquire()\n")
        cell(shell, "%%gpudask\nfrom distributed import get_worker\nname = get_worker().name\n")
        assert shell.user_ns["name"] == "demo-gpu-worker-1-00000"


def test_a_cluster_is_found_by_its_name_or_variable_and_bad_options_are_told(shell: InteractiveShell):
    cell(shell, "%%gpudask --cluster cluster\na = 1\n")
    cell(shell, "del cluster\n")
    cell(shell, "%%gpudask --cluster demo\nb = 2\n")
    assert shell.user_ns["b"] == 2
    cell(shell, "%gpudask --release")
    with pytest.raises(KubeClusterError, match="no clusters"):
        cell(shell, "%%gpudask\na = 1\n")
    with pytest.raises(KubeClusterError, match="unrecognized arguments: --gpus"):
        cell(shell, "%%gpudask --gpus\na = 1\n")
