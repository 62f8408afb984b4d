"""A flow whose tasks run on a cluster that Prefect makes for it and deletes after it.

Arguments: the name of the cluster's class, the class's arguments as JSON, and those of `adapt` as JSON.
Prefect's server runs beside it: the workers tell it the states of their tasks.
"""

import json
import os
import socket
import subprocess
import sys
import time

import httpx

CLUSTER_CLASS, CLUSTER_KWARGS, ADAPT_KWARGS = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
_SERVER_SECONDS = 150
API_URL = f"http://{socket.gethostbyname(socket.gethostname())}:4200/api"
# Read when Prefect is imported; its context takes them to the workers. Nobody looks at pages, and no block is used.
os.environ |= {
    "PREFECT_API_URL": API_URL,
    "PREFECT_HOME": "/tmp/prefect",  # noqa: S108 - in the pod
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
}


def start_server() -> subprocess.Popen[bytes]:
    """Prefect's server, which answers when this returns."""
    server = subprocess.Popen(
        [sys.executable, "-m", "prefect", "server", "start", "--host", "0.0.0.0", "--no-services"],  # noqa: S104 - the workers come from other pods
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + _SERVER_SECONDS
    while True:
        try:
            httpx.get(f"{API_URL}/health", timeout=5).raise_for_status()
        except httpx.HTTPError:
            if time.monotonic() > deadline or server.poll() is not None:
                raise
            time.sleep(0.5)
        else:
            return server


def main() -> None:
    """Run the flow, and say what its tasks saw."""
    import dask  # noqa: PLC0415 - the variables are set before
    from prefect import flow, task  # noqa: PLC0415
    from prefect_dask import DaskTaskRunner  # noqa: PLC0415

    @task
    def double(number: int) -> int:
        return 2 * number

    @task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @task
    def where(_: int) -> str:
        from distributed import get_worker  # noqa: PLC0415 - on the worker

        return str(get_worker().name)

    runner = DaskTaskRunner(cluster_class=CLUSTER_CLASS, cluster_kwargs=CLUSTER_KWARGS, adapt_kwargs=ADAPT_KWARGS)

    @flow(task_runner=runner)
    def pipeline(*, with_gpu: bool) -> tuple[int, str, str]:
        added = total.submit(double.map(range(4)))
        plain = where.submit(added)
        if not with_gpu:
            return added.result(), plain.result(), ""
        with dask.annotate(resources={"GPU": 1}):
            on_gpu = where.submit(added)
        return added.result(), plain.result(), on_gpu.result()

    added, plain, on_gpu = pipeline(with_gpu=CLUSTER_CLASS == "gpudask.KubeCluster")
    print("\ntotal:", added, flush=True)  # the stock client's table ends without a newline
    print("plain task:", plain, flush=True)
    print("GPU task:", on_gpu, flush=True)


if __name__ == "__main__":
    prefect_server = start_server()
    try:
        main()
    finally:
        prefect_server.kill()  # it would first wait for those that listen to it, and nothing of it is kept
        prefect_server.wait()
