"""The command: dask-kubernetes' own tests on the cluster of `make test-e2e`, with our operator and its mirror.

The last line is `stock: passed=… failed=… not_applicable=…`. The exit status is 1 if a test fails that
`expected.toml` does not name. It takes some 15 minutes; it installs the operator with other values, so nothing else
may use the cluster meanwhile.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from local.layout import REPOSITORY, cache_dir
from tests.e2e.platform import Platform
from tests.releases.environment import Environment
from tests.stock_suite import report

SUITES = ("dask_kubernetes/operator/kubecluster/tests", "dask_kubernetes/operator/controller/tests")
_ENVIRONMENT = "stock-suite"
_TEST_SECONDS = 180  # theirs is 60, on a machine that does nothing else
_LIMIT_SECONDS = 3600.0
_DEFINITIONS = REPOSITORY / "crds" / "mirror.yaml"
_HOW_TO_GET_ONE = (
    "unpack its sdist: pip download dask-kubernetes --no-deps --no-binary :all: --dest /tmp/stock &&"
    " tar -xf /tmp/stock/dask_kubernetes-*.tar.gz -C /tmp/stock, and give the folder: make test-stock DIR=..."
)


class NoSuiteError(Exception):
    """The directory is no checkout of dask-kubernetes with its tests; the text says how to get one."""


def suites(directory: str) -> list[Path]:
    """The folders of tests below a checkout or an unpacked sdist.

    Raises:
        NoSuiteError: one is missing.
    """
    if not directory:
        raise NoSuiteError(f"the tests of dask-kubernetes are no part of this repository; {_HOW_TO_GET_ONE}")
    found = [Path(directory).resolve() / suite for suite in SUITES]
    missing = [str(path) for path in found if not path.is_dir()]
    if missing:
        raise NoSuiteError(f"there is no {missing[0]}: {_HOW_TO_GET_ONE}")
    return found


def command(python: Path, directory: Path, options: dict[str, str], arguments: list[str]) -> list[str]:
    """pytest on the suites in `directory`, with the plugin in place of their conftest and nothing written there.

    Args:
        python: of the stock client's environment.
        directory: a checkout of dask-kubernetes.
        options: of the plugin.
        arguments: more ones of pytest.
    """
    return [
        *(str(python), "-X", f"pycache_prefix={cache_dir() / 'bytecode'}"),
        *("-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider"),
        *("-p", "tests.stock_suite.plugin", "--noconftest", "--import-mode=importlib"),
        # Without a file of settings there pytest would look through the folders above the checkout, too.
        *("-c", os.devnull, f"--rootdir={directory}", f"--confcutdir={directory}"),
        *("-o", f"timeout={_TEST_SECONDS}", "-o", "timeout_func_only=true"),
        *(f"--stock-{name}={value}" for name, value in options.items()),
        *(str(directory / suite) for suite in SUITES),
        *arguments,
    ]


def variables(directory: Path, scratch: str) -> dict[str, str]:
    """The environment of that pytest: the checkout's client, and none of the configuration of who runs this."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": scratch,
        "USER": "stock",
        "DASK_CONFIG": scratch,
        # Else it looks the Service's name up for 10 s, twice, before it forwards a port.
        "DASK_KUBERNETES__PORT_FORWARD_CLUSTER_IP": "true",
        "PYTHONPATH": os.pathsep.join([str(directory), str(REPOSITORY)]),
    }


def run(directory: Path, options: dict[str, str], arguments: list[str]) -> report.Report:
    """Run the tests; what came of them.

    Raises:
        subprocess.TimeoutExpired: they do not end.
    """
    python = Environment.ensure(_ENVIRONMENT).python
    with tempfile.TemporaryDirectory(prefix="stock-suite-") as scratch:
        results = Path(scratch) / "results.jsonl"
        results.touch()
        given = options | {"expected": str(report.EXPECTED), "results": str(results)}
        done = subprocess.run(
            command(python, directory, given, arguments),
            env=variables(directory, scratch),
            cwd=directory,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
        ran = report.read(results.read_text())
    expected = report.expectations(report.EXPECTED.read_text())
    return report.judge(ran, expected, status=done.returncode, whole=not arguments)


def main() -> int:
    """Run what the arguments say; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.stock_suite", description=__doc__)
    parser.add_argument("directory", nargs="?", default="", help="a checkout or an unpacked sdist of dask-kubernetes")
    given, arguments = parser.parse_known_args()
    try:
        suites(given.directory)
    except NoSuiteError as error:
        print(error, file=sys.stderr)
        return 2
    platform = Platform.up()
    platform.install("mirror.enabled=true")
    try:
        kubectl = platform.kubectl
        options = {"kubectl": kubectl.path, "kubeconfig": str(kubectl.kubeconfig), "image": platform.provider.image}
        result = run(Path(given.directory).resolve(), options, arguments)
        if not result.is_as_expected:
            print(platform.operator_log())
    finally:
        platform.install()
        platform.kubectl("delete", "-f", str(_DEFINITIONS))
    print(result)
    return 0 if result.is_as_expected else 1


if __name__ == "__main__":
    sys.exit(main())
