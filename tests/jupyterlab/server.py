"""A JupyterLab server of its own: nobody's settings, and every file in one folder."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.layout import REPOSITORY
from tests.eventually import eventually
from tests.releases.environment import Environment

TOKEN = "only-for-this-test"
_SECONDS = 240
# What it would ask its user at its first start.
_NOTIFICATION = "@jupyterlab/apputils-extension/notification.jupyterlab-settings"


@dataclass(frozen=True)
class Lab:
    """A server that runs."""

    process: subprocess.Popen[bytes]
    folder: Path
    base_url: str

    @property
    def page(self) -> str:
        """The URL that its user opens, for a page where nothing is open yet."""
        return f"{self.base_url}lab?token={TOKEN}&reset"

    @property
    def log(self) -> str:
        """What it has said."""
        return (self.folder / "log").read_text(errors="replace")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of its own API, as the extension in the browser asks it; None where there is no text.

        Raises:
            urllib.error.HTTPError: it refuses.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {TOKEN}"}
        request = urllib.request.Request(self.base_url + path, data, headers, method=method)  # noqa: S310 - http alone
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - as above
            text = answer.read()
        return json.loads(text) if text else None

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it by a signal, and wait until it has ended."""
        self.process.send_signal(number)
        self.process.wait(_SECONDS)


@contextlib.contextmanager
def lab(folder: Path, kubeconfig: Path, dask_config: str, variables: Mapping[str, str] | None = None) -> Iterator[Lab]:
    """A JupyterLab that is started in `folder`.

    Args:
        folder: empty or missing; becomes its user's home.
        kubeconfig: that user's.
        dask_config: that user's configuration of Dask, as YAML.
        variables: more of its environment.
    """
    python = Environment.of_jupyterlab().python
    (folder / "work").mkdir(parents=True)
    (folder / "dask").mkdir()
    (folder / "dask" / "labextension.yaml").write_text(dask_config)
    (settings := folder / "settings" / _NOTIFICATION).parent.mkdir(parents=True)
    settings.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    environment = {
        "PATH": f"{python.parent}:/usr/bin:/bin",
        "PYTHONPATH": str(REPOSITORY / "operator"),
        "HOME": str(folder),
        "KUBECONFIG": str(kubeconfig),
        "DASK_CONFIG": str(folder / "dask"),
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_CONFIG_DIR": str(folder / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        **(variables or {}),
    }
    command = [str(python), "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={_free_port()}", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}/work"]
    command.append("--LabApp.expose_app_in_browser=True")  # so that a test can give its commands, as its menus do
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder / "work", stdout=log, stderr=log)
    try:
        yield Lab(process, folder, _base_url(process, folder))
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _base_url(process: subprocess.Popen[bytes], folder: Path) -> str:
    """Where it listens, as it notes it once it does: another port where somebody was faster."""
    note = folder / "runtime" / f"jpserver-{process.pid}.json"

    def noted() -> str:
        assert process.poll() is None, (folder / "log").read_text(errors="replace")
        try:
            url = json.loads(note.read_text())["url"]
            urllib.request.urlopen(f"{url}api", timeout=_SECONDS).close()  # noqa: S310 - it is http
        except (OSError, ValueError):
            return ""
        return str(url)

    return eventually(noted, "JupyterLab listens", seconds=_SECONDS)


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])
