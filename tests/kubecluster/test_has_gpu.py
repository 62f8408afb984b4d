import subprocess
import sys

from distributed import Client, SpecCluster

from gpudask import has_gpu


def test_a_task_on_a_gpu_worker_has_one(dask: SpecCluster):
    with Client(dask) as client:
        assert client.submit(has_gpu, resources={"GPU": 1}, pure=False).result(timeout=60)


def test_a_task_on_a_cpu_worker_has_none(dask: SpecCluster):
    with Client(dask) as client:
        assert not client.submit(has_gpu, workers=["demo-cpu-worker-0-aaaaa"], pure=False).result(timeout=60)


def test_outside_a_task_there_is_none():
    assert not has_gpu()


def test_it_needs_nothing_but_gpudask_and_asks_for_nothing():
    program = (
        "import sys, gpudask\n"
        "assert not gpudask.has_gpu()\n"
        "heavy = {'distributed', 'httpx', 'dask_kubernetes', 'pydantic', 'yaml', 'kubernetes'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30)

    assert done.returncode == 0, done.stderr
