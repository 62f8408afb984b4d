"""Run the job of `dagster_steps.py` on the cluster that is named, and say what its steps gave.

Its instance is in DAGSTER_HOME, a directory that the workers have too: a step reads and writes there.
"""

import sys

from dagster import DagsterInstance, execute_job, reconstructable
from dagster_steps import steps

from gpudask import KubeCluster


def main(name: str) -> None:
    """Run it, and print each step's output."""
    with KubeCluster.from_name(name, quiet=True) as cluster, DagsterInstance.get() as instance:
        config = {"execution": {"config": {"cluster": {"existing": {"address": cluster.scheduler_address}}}}}
        with execute_job(reconstructable(steps), instance=instance, run_config=config, raise_on_error=True) as done:
            print("success:", done.success, flush=True)
            for step in ("plain", "on_gpu", "last"):
                print(f"{step}:", done.output_for_node(step), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
