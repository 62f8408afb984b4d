"""Command lines of stock containers, flag by flag."""

import pytest

from gpudask.stock.launch import Launch, read
from gpudask.stock.notes import Notes


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dask-worker --name $(DASK_WORKER_NAME) --dashboard", Launch("worker")),
        ("/opt/conda/bin/dask worker --no-nanny", Launch("worker")),
        ("dask worker $(DASK_SCHEDULER_ADDRESS) --nthreads=4", Launch("worker", nthreads=4)),
        ("dask worker tcp://lab-scheduler:8786 --memory-limit 16GB", Launch("worker", memory="16G")),
        ("dask worker --memory-limit 16GiB", Launch("worker", memory="16Gi")),
        ("dask-cuda-worker --resources GPU=1,MEM=2", Launch("cuda", offers={"GPU": "1", "MEM": "2"})),
        ("dask cuda worker --rmm-pool-size 0.9", Launch("cuda", extra=["--rmm-pool-size", "0.9"])),
        (
            "dask worker --preload a.py --preload-argv x --preload b.py",
            Launch("worker", preload=["a.py", "b.py"], preload_argv=["x"]),
        ),
        ("dask worker --no-dashboard tcp://lab-scheduler:8786", Launch("worker", extra=["--no-dashboard"])),
        (
            "dask worker --protocol tls --tls-ca-file ca.pem",
            Launch("worker", protocol="tls", extra=["--tls-ca-file", "ca.pem"]),
        ),
        ("dask-scheduler --port 8786 --dashboard-address :8787", Launch("scheduler")),
        (
            "dask scheduler --preload /x.py --idle-timeout 1h",
            Launch("scheduler", extra=["--preload", "/x.py", "--idle-timeout", "1h"]),
        ),
        ("dask worker --nworkers 1", Launch("worker")),
        ("", Launch()),
    ],
)
def test_a_command_line_is_read_without_a_loss(line: str, expected: Launch):
    notes = Notes()

    assert read(line.split(), ("DaskCluster x", "args"), notes) == expected
    assert notes.items == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("dask worker --nanny", "--nanny: workers run without one"),
        ("dask worker --nthreads auto", "--nthreads auto: not a number"),
        ("dask worker --memory-limit 0", "--memory-limit 0: Dask is told"),
        ("dask worker --memory-limit auto", "--memory-limit auto: Dask is told"),
        ("dask worker --scheduler-file /s.json", "--scheduler-file /s.json: workers connect"),
        ("dask worker tcp://elsewhere:8786", "'tcp://elsewhere:8786': workers connect"),
        ("dask scheduler --dashboard-prefix /x", "--dashboard-prefix /x: the operator reads"),
        ("dask scheduler --dashboard-address :9999", "--dashboard-address :9999: the ports are fixed, 8787 here"),
        ("jupyter lab", "'jupyter lab' is no Dask command"),
        ("wrapper.sh dask worker", "'wrapper.sh' before the Dask command"),
    ],
)
def test_a_loss_is_said(line: str, said: str):
    notes = Notes()
    read(line.split(), ("DaskCluster x", "args"), notes)

    assert [note.text[: len(said)] for note in notes.items] == [said]
