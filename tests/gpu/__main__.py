"""`python -m tests.gpu [--from-bundle DIR] [pytest's options]`: the cluster, the operator, then the tests.

Needs a machine with NVIDIA GPUs, root, and a Python with CuPy and pytest; everything else comes from a bundle
(docs/offline.md). Standard library alone here. The summary goes to $GPUDASK_RESULTS, by default build/gpu-results.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from local.bundle.activation import last_bundle, site, worker_sites
from local.errors import LocalClusterError
from local.layout import REPOSITORY
from tests.gpu.device_files import SWITCH, why_not


def main() -> int:
    """Returns pytest's exit status, or that of the step before it that failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--from-bundle", metavar="DIR", help="as of `local up`; default: the last received")
    options, others = parser.parse_known_args()
    os.environ[SWITCH] = "1"
    if reason := why_not():
        print(f"skipped: {reason}")
        return 0
    bundle = ["--from-bundle", options.from_bundle] if options.from_bundle else []
    for step in (["up", *bundle], ["install"]):
        if status := _run("-m", "local", *step):
            return status
    try:
        packages = _packages()
    except LocalClusterError as error:
        print(f"Error: {error}")
        return 1
    # The client of these tests has no GPU, whatever the machine has: the pods have them.
    environment = {"PYTHONPATH": packages, "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""}
    return _run("-m", "pytest", "-c", "tests/gpu/pytest.ini", "tests/gpu", *others, **environment)


def _packages() -> str:
    """The directories of what the bundle brings for Dask and for `local`, as PYTHONPATH has them."""
    root = last_bundle()
    if root is None:
        raise LocalClusterError("no bundle was received on this machine: `python -m tests.gpu --from-bundle DIR`.")
    return os.pathsep.join(map(str, [*worker_sites(root), site("tools", root)]))


def _run(*arguments: str, **environment: str) -> int:
    began = time.monotonic()
    print(f"+ {' '.join(['python', *arguments])}", flush=True)
    done = subprocess.run([sys.executable, *arguments], cwd=REPOSITORY, env={**os.environ, **environment}, check=False)
    print(f"  ended with {done.returncode} after {time.monotonic() - began:.1f} s", flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
