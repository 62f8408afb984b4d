"""kubectl in the hands of tests: how it is found, and how it is called."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from local.layout import clusters_dir
from tests.eventually import eventually

Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Kubectl:
    """One kubectl, one cluster, one namespace ("": that of each object). Calling it runs it."""

    path: str
    kubeconfig: Path | None = None
    namespace: str = "default"

    def __call__(self, *arguments: str, stdin: str | None = None) -> Done:
        """Run it; a failure is an AssertionError that shows what it wrote."""
        done = self.attempt(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done

    def attempt(self, *arguments: str, stdin: str | None = None) -> Done:
        """Run it, whatever comes of it.

        Its environment is copied here: a child that is started with this process' own reads it where another thread
        may just be changing it, and is then not started at all (`Bad address`).
        """
        command = [self.path, *self._cluster, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=dict(os.environ))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start it, such as a watch, and read what it writes line by line."""
        command = [self.path, *self._cluster, *arguments]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=dict(os.environ)
        )

    def define(self, *definitions: Path) -> None:
        """Apply files of CustomResourceDefinitions, and wait until all of them are served."""
        files = [flag for path in definitions for flag in ("-f", str(path))]
        self("apply", "--server-side", *files)
        self.await_served(*files)

    def await_served(self, *definitions: str) -> None:
        """Wait until these CustomResourceDefinitions are served: their names, or `-f` and a file.

        Established, and in the discovery of their group: the API server fills that in later, and programs go by it.
        """
        eventually(
            lambda: not self._unserved(*definitions),
            f"served: {definitions}",
            show=lambda: self._unserved(*definitions),
        )

    def _unserved(self, *definitions: str) -> list[str]:
        """What is not served yet of these CustomResourceDefinitions."""
        found = json.loads(self("get", *definitions, "-o", "json").stdout)
        discovered: dict[str, set[str]] = {}  # by group and version: kubectl is asked once for each
        unserved = []
        for definition in found.get("items", [found]):
            spec = definition["spec"]
            for version in [version["name"] for version in spec["versions"] if version["served"]]:
                place = f"{spec['group']}/{version}"
                if place not in discovered:
                    discovered[place] = self._plurals(place)
                if spec["names"]["plural"] not in discovered[place]:
                    unserved.append(f"{definition['metadata']['name']}/{version}")
        return unserved

    def _plurals(self, group_version: str) -> set[str]:
        """What the discovery of a group's version names."""
        done = self.attempt("get", "--raw", f"/apis/{group_version}")
        return {item["name"] for item in json.loads(done.stdout)["resources"]} if done.returncode == 0 else set()

    def inside(self, namespace: str) -> Kubectl:
        """The same in another namespace."""
        return replace(self, namespace=namespace)

    @property
    def _cluster(self) -> list[str]:
        if not self.kubeconfig:
            return []
        return [f"--kubeconfig={self.kubeconfig}", *([f"--namespace={self.namespace}"] if self.namespace else [])]


def find_kubectl() -> str | None:
    """A kubectl for work without a cluster: the machine's, else that of any local cluster."""
    built = (str(path) for path in clusters_dir().glob("*/bin/kubectl") if path.exists())
    return shutil.which("kubectl") or next(built, None)
