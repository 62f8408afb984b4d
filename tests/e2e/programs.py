"""A program in a pod of the cluster: files of this checkout, run with the rights of an account (accounts.py)."""

from __future__ import annotations

from gpudask.api import Json

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.manifests import RESTRICTED_CONTAINER, RESTRICTED_POD
from tests.e2e.provider import chosen
from tests.e2e.space import Space
from tests.eventually import eventually

IMAGE = chosen().image
# Until a file of that name is there: `Program.tell` makes it.
TOLD_DIRECTORY = "/tmp/told"  # noqa: S108 - in the pod
_AT = "/program"
_CPU = "50m"  # a pod that asks for nothing gets next to nothing while the others of its node work


@dataclass(frozen=True)
class Program:
    """A pod that runs one program, and ends with it."""

    space: Space
    name: str

    @classmethod
    def start(
        cls,
        space: Space,
        main: Path,
        *arguments: str,
        user: str,
        name: str = "program",
        image: str = IMAGE,
        mounts: Mapping[str, Path] | None = None,
        writable: Collection[str] = (),
        environment: Mapping[str, str] | None = None,
        cpu: str = _CPU,
    ) -> Program:
        """Start `python MAIN ARGUMENTS` in `image`, with `user`'s rights; `cpu` is what it requests.

        `mounts`: path in the pod -> a file or directory of this machine, which the nodes share; it may write into those
        whose path is among `writable`.
        """
        space.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name},
                "data": {"main.py": main.read_text()},
            }
        )
        volumes: list[Json] = [{"name": "program", "configMap": {"name": name}}]
        places: list[Json] = [{"name": "program", "mountPath": _AT}]
        for number, (place, path) in enumerate((mounts or {}).items()):
            volumes.append({"name": f"mount-{number}", "hostPath": {"path": str(path)}})
            places.append({"name": f"mount-{number}", "mountPath": place, "readOnly": place not in writable})
        container = {
            "name": "program",
            "image": image,
            "imagePullPolicy": chosen().pull_policy,
            "command": ["python", "-u", f"{_AT}/main.py", *arguments],
            "env": [{"name": key, "value": value} for key, value in (environment or {}).items()],
            "volumeMounts": places,
            "resources": {"requests": {"cpu": cpu}},
            **RESTRICTED_CONTAINER,
        }
        spec = {
            "serviceAccountName": user,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **RESTRICTED_POD,
            "volumes": volumes,
        }
        space.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        return cls(space, name)

    def phase(self) -> str:
        """The pod's phase."""
        return str(self.space.find("pods", self.name)["status"]["phase"])

    def printed(self) -> str:
        """What it has written so far, its errors too; empty where it has not begun."""
        return self.space.kubectl.attempt("logs", self.name).stdout

    def wait_line(self, start: str, *, seconds: float = 60) -> str:
        """Wait for a line that begins so, and return the rest of it.

        Raises:
            AssertionError: it did not come in `seconds`, or the program ended without it; with what it wrote.
        """
        deadline = time.monotonic() + seconds
        while True:
            ended = self.phase() in ("Succeeded", "Failed")
            text = self.printed()
            for line in text.splitlines():
                if line.startswith(start):
                    return line.removeprefix(start).strip()
            assert not ended, f"{self.name} ended without a line {start!r}:\n{text}"
            assert time.monotonic() < deadline, f"{self.name}: no line {start!r} in {seconds:g} s:\n{text}"
            time.sleep(0.3)

    def tell(self, word: str) -> None:
        """Let it go on, where it waits for the file `/tmp/told/WORD`."""
        self.space.kubectl(
            "exec", self.name, "--", "sh", "-c", f"mkdir -p {TOLD_DIRECTORY}; : > {TOLD_DIRECTORY}/{word}"
        )

    def lines(self, *, seconds: float = 120) -> dict[str, str]:
        """Wait until it has ended well, and return its lines `step: what was seen` by step.

        Raises:
            AssertionError: it failed, or did not end in `seconds`; with what it wrote.
        """
        eventually(
            lambda: self.phase() in ("Succeeded", "Failed"),
            f"{self.name} ends",
            seconds=seconds,
            show=lambda: f"\n{self.printed()}{self.space.show()}",
        )
        text = self.printed()
        assert self.phase() == "Succeeded", text
        return {step: seen for step, _, seen in (line.partition(": ") for line in text.splitlines())}

    def remove(self) -> None:
        """Delete the pod."""
        self.space.kubectl("delete", "pod", self.name, "--wait=false")
