"""A client part on a GPU worker: what it can do there, what comes back, and how it ends."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time

import cloudpickle
import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, Variable, get_client

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster.on_gpu.remote import TOPIC
from gpudask.kubecluster.on_gpu.client_part import of_script
from tests.eventually import eventually
from tests.kubecluster import fake_server as fake
from tests.kubecluster.on_gpu.conftest import Pods

pytestmark = pytest.mark.dask
GPU = {"GPU": 1}


@pytest.fixture(autouse=True)
def _by_value():
    """The workers have no tests."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def where() -> str:
    from distributed import get_worker

    return str(get_worker().name)


def test_a_function_runs_on_the_gpu_worker_and_its_result_comes_back(one_gpu: KubeCluster):
    assert one_gpu.run_on_gpu(where) == "demo-gpu-worker-0-00000"
    assert one_gpu.run_on_gpu(lambda a, b: a - b, 5, b=2) == 3


def test_a_module_that_the_worker_lacks_is_named_with_what_to_write(one_gpu: KubeCluster):
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    try:
        with pytest.raises(KubeClusterError, match=r"No module named 'tests'.*upload_file"):
            one_gpu.run_on_gpu(where)
    finally:
        cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_its_tasks_have_the_only_gpu_for_themselves(one_gpu: KubeCluster):
    def program():
        client = get_client()
        with dask.annotate(resources=GPU):
            return client.submit(lambda: 6 * 7, pure=False).result() + sum(
                client.gather(client.map(lambda n: 2 * n, range(10), pure=False))
            )

    assert one_gpu.run_on_gpu(program) == 42 + 90


def test_frames_that_need_a_device_are_made_and_computed_there_unchanged(one_gpu: KubeCluster):
    def program():
        import device_frames

        frame = dd.from_pandas(device_frames.DeviceFrame(pd.DataFrame({"k": [1, 2, 1], "v": [1, 2, 3]})), npartitions=2)
        return device_frames.to_host(frame.groupby("k").v.sum().compute().to_frame()).v.to_dict()

    assert one_gpu.run_on_gpu(program) == {1: 4, 2: 2}


def test_a_result_that_needs_a_device_says_what_to_write(one_gpu: KubeCluster):
    def program():
        import device_frames

        return [device_frames.to_device(pd.DataFrame({"v": [1]}))]

    with pytest.raises(KubeClusterError, match="result of program cannot be read") as caught:
        one_gpu.run_on_gpu(program)
    assert "device_frames.DeviceFrame" in str(caught.value)
    assert "cudaErrorNoDevice" in str(caught.value)
    assert ".to_pandas()" in str(caught.value)
    assert ".get()" in str(caught.value)


def test_a_persisted_collection_as_a_result_is_refused(one_gpu: KubeCluster):
    with pytest.raises(TypeError, match="released when what made it ends"):
        one_gpu.run_on_gpu(lambda: get_client().submit(sum, [1], resources=GPU))


def test_what_is_computed_on_the_cluster_can_be_given_to_it(one_gpu: KubeCluster):
    with Client(one_gpu) as client:
        future = client.submit(sum, [1, 2], resources=GPU)
        assert one_gpu.run_on_gpu(lambda given: given.result(timeout=60) + 1, future) == 4


def test_an_error_comes_with_its_traceback(one_gpu: KubeCluster):
    def inner():
        raise ZeroDivisionError("here")

    def outer():
        inner()

    with pytest.raises(ZeroDivisionError, match="here") as caught:
        one_gpu.run_on_gpu(outer)
    names = [entry.name for entry in caught.traceback]
    assert names[-2:] == ["outer", "inner"]
    assert "outcome_of" not in names


def test_an_error_that_cannot_be_read_here_comes_as_text(one_gpu: KubeCluster):
    def program():
        import device_frames

        raise ValueError(device_frames.to_device(pd.DataFrame({"v": [1]})))

    with pytest.raises(KubeClusterError, match="ValueError") as caught:
        one_gpu.run_on_gpu(program)
    assert "in program" in str(caught.value)


def test_what_it_prints_is_printed_here_and_in_its_log(
    own_gpu: KubeCluster, pods: Pods, capsys: pytest.CaptureFixture[str]
):
    def program():
        import sys

        print("one")
        print("two", file=sys.stderr)
        print("three", end="")

    own_gpu.run_on_gpu(program)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("one\nthree", "two\n")
    assert "one" in pods.log("demo-gpu-worker-0-00000")


@pytest.mark.parametrize("has_client", [True, False])
def test_what_tasks_print_for_all_clients_is_printed_once(
    one_gpu: KubeCluster, capsys: pytest.CaptureFixture[str], has_client: bool
):
    def program():
        import distributed

        distributed.print("for all")

    seen: list[str] = []
    with Client(one_gpu) if has_client else contextlib.nullcontext():
        one_gpu.run_on_gpu(program)
        eventually(lambda: "for all" in (seen.append(capsys.readouterr().out) or "".join(seen)), "it is printed")
    assert ("".join(seen) + capsys.readouterr().out).count("for all") == 1


def test_much_output_is_cut_and_says_so(one_gpu: KubeCluster, capsys: pytest.CaptureFixture[str]):
    one_gpu.run_on_gpu(lambda: print("x" * 3_000_000))
    printed = capsys.readouterr()
    assert len(printed.out) == 1_000_000
    assert "worker's log" in printed.err


def test_the_decorator_passes_arguments_also_one_called_pool(one_gpu: KubeCluster):
    @one_gpu.on_gpu
    def program(a, *, pool):
        """Say so."""
        return a, pool

    assert program(1, pool="x") == (1, "x")
    assert program.__doc__ == "Say so."
    assert one_gpu.on_gpu(pool="gpu")(where)() == "demo-gpu-worker-0-00000"


def test_a_with_block_is_refused_with_what_to_write(one_gpu: KubeCluster):
    with pytest.raises(KubeClusterError, match=r"@cluster.on_gpu above `def`"), one_gpu.on_gpu():
        pass


def test_it_waits_as_demand_until_the_pool_has_a_worker(pods: Pods):
    with KubeCluster.from_name("demo", quiet=True) as cluster:
        found = []
        thread = threading.Thread(target=lambda: found.append(cluster.run_on_gpu(where)))
        thread.start()
        pods.add("demo-cpu-worker-0-00000", offers="")
        pods.add("demo-gpu-worker-0-00000")
        thread.join(60)
    assert found == ["demo-gpu-worker-0-00000"]


def test_the_loss_of_its_worker_is_an_error_and_it_is_not_run_again(pods: Pods, own_gpu: KubeCluster):
    def program():
        client = get_client()
        begun = Variable("begun", client=client)
        begun.set([*begun.get(timeout="60s"), where()])
        time.sleep(600)

    with Client(own_gpu) as client:
        begun = Variable("begun", client=client)
        begun.set([])
        errors: list[BaseException] = []

        def call() -> None:
            try:
                own_gpu.run_on_gpu(program)
            except KubeClusterError as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        eventually(begun.get, "it has begun")
        pods.add("demo-gpu-worker-1-00000")
        pods.kill("demo-gpu-worker-0-00000")
        thread.join(90)
        assert "is gone" in str(errors[0])
        assert "call it again if that does no harm" in str(errors[0])
        assert list(begun.get()) == ["demo-gpu-worker-0-00000"]


def test_ctrl_c_ends_it_there_as_well(own_gpu: KubeCluster, pods: Pods, capsys: pytest.CaptureFixture[str]):
    def program():
        print("begun")
        try:
            while True:
                time.sleep(0.05)
        finally:
            print("it was interrupted")

    is_over = threading.Event()

    def interrupt() -> None:
        eventually(lambda: "begun" in pods.log("demo-gpu-worker-0-00000"), "it has begun")
        os.kill(os.getpid(), signal.SIGINT)
        if not is_over.wait(60):  # Python dropped it: that raises nothing in a callback of its garbage collector
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        own_gpu.run_on_gpu(program)
    is_over.set()
    thread.join()
    eventually(lambda: "it was interrupted" in pods.log("demo-gpu-worker-0-00000"), "it has ended")
    assert own_gpu.run_on_gpu(where)  # the worker is as before


async def test_an_asynchronous_cluster_awaits_it(pods: Pods):
    await asyncio.to_thread(pods.add, "demo-gpu-worker-0-00000")
    async with KubeCluster.from_name("demo", quiet=True, asynchronous=True) as cluster:
        assert await cluster.run_on_gpu(where) == "demo-gpu-worker-0-00000"
        assert await cluster.on_gpu(lambda a: a + 1)(1) == 2


def test_nothing_of_a_run_stays_with_the_scheduler_but_its_last_events_under_one_topic(one_gpu: KubeCluster):
    def left(dask_scheduler):
        topics = [topic for topic in dask_scheduler._broker._topics if topic.startswith(TOPIC)]
        return len(dask_scheduler.tasks), list(dask_scheduler.extensions["events"]._events), topics

    one_gpu.run_on_gpu(where)
    one_gpu.run_on_gpu(where)
    with Client(one_gpu) as client:
        assert client.run_on_scheduler(left) == (0, [], [TOPIC])


def test_a_worker_that_lends_the_resource_and_has_no_gpu_does_not_run_it(own_gpu: KubeCluster):
    def lend(dask_worker):
        dask_worker.gpudask_lent = {"GPU": 1}

    with Client(own_gpu) as client:
        client.run(lend)
    with pytest.raises(KubeClusterError, match=r"without a GPU.*wait_for_workers"):
        own_gpu.run_on_gpu(where)


def test_a_script_runs_as_a_program_does(one_gpu: KubeCluster, tmp_path, capsys: pytest.CaptureFixture[str]):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from distributed import get_client\n"
        "def main():\n"
        "    print(sys.argv[1:], get_client().submit(lambda: 7, resources={'GPU': 1}).result())\n"
        "    sys.exit(3)\n"
        "if __name__ == '__main__':\n"
        "    main()\n"
    )
    assert one_gpu.run_on_gpu(of_script(script, ["a", "b"])) == 3
    assert capsys.readouterr().out == "['a', 'b'] 7\n"


def test_a_cluster_without_gpus_says_what_to_write(demo: fake.FakeServer):
    with KubeCluster.from_name("demo", quiet=True) as cluster, pytest.raises(KubeClusterError, match="add_pool"):
        cluster.run_on_gpu(where)
