"""A program that goes on while what it stands on breaks. Each step prints a line `step: what was seen`.

Argument: the name of a cluster with the pool `cpu`. It goes on to the operator's part when it is told `operator`.
"""

import sys
import time
from pathlib import Path

from distributed import Client, wait

from gpudask import KubeCluster

TOLD = Path("/tmp/told/operator")  # noqa: S108 - in the pod
PATIENCE_SECONDS = 240  # a test allows half of it
TASK_SECONDS = 0.3


def say(step: str, *seen: object) -> None:
    print(f"{step}:", *seen, flush=True)


def slow(_: int) -> int:
    time.sleep(TASK_SECONDS)
    return 3


def loses_its_scheduler(client: Client) -> None:
    work = client.map(slow, range(400), pure=False)
    wait(work, timeout=120, return_when="FIRST_COMPLETED")
    say("in the midst of work", sum(future.done() for future in work))
    began = time.monotonic()
    try:
        client.gather(work)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test reads it
        say("the scheduler went", f"{type(error).__name__}: {error}"[:300].replace("\n", " "))
        began = time.monotonic()
    while time.monotonic() - began < PATIENCE_SECONDS:
        try:
            result = client.submit(slow, 0, pure=False).result(timeout=5)
        except Exception as error:  # noqa: BLE001 - told, and tried again
            say("not yet", type(error).__name__)
            time.sleep(0.2)
        else:
            say("computed again after", f"{time.monotonic() - began:.1f} s", result)
            return


def loses_its_operator(cluster: KubeCluster, client: Client) -> None:
    while not TOLD.exists():
        time.sleep(0.1)
    say("without an operator", client.submit(slow, 0, pure=False).result(timeout=120))
    began = time.monotonic()
    cluster.scale(2, pool="cpu")
    cluster.wait_for_workers(2, pool="cpu", timeout=PATIENCE_SECONDS)
    say("scaled again after", f"{time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    with KubeCluster.from_name(sys.argv[1], quiet=True) as found, Client(found, timeout=PATIENCE_SECONDS) as its_client:
        loses_its_scheduler(its_client)
        loses_its_operator(found, its_client)
