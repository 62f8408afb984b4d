"""A credential plugin: the program that a kubeconfig's user names in `exec`, for a token or a client certificate.

A thread waits for it, not asyncio: the selector loop, which Dask runs on under Windows, starts no processes. What the
program is told and what it answers: https://kubernetes.io/docs/reference/config-api/client-authentication.v1/
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

from gpudask.api import Json
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.kube.config import Choice
from gpudask.kubecluster.timing import Timing

_API = "client.authentication.k8s.io"
_VERSIONS = (f"{_API}/v1", f"{_API}/v1beta1")
_NEVER, _IF_AVAILABLE, ALWAYS = "Never", "IfAvailable", "Always"
_OF_CLUSTER = (
    "server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url",
    "disable-compression",
)  # fmt: skip
_MOST_BYTES = 1 << 20  # of an answer; certificates have some thousand
_MOST_CHARACTERS = 2000  # of its standard error in a message
_PIPE_SECONDS = 1.0  # a browser that it started may hold its pipes for as long as that runs
_OWN_GROUP = os.name == "posix"
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d):(\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)")


@dataclass(frozen=True)
class Grant:
    """What a plugin answered: a token, or a client certificate with its key, as PEM; when they end."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires: datetime | None = None


@dataclass(frozen=True)
class Plugin:
    """One `exec` section, checked.

    Attributes:
        context: whose user's it is, for messages.
        command: a name on PATH, or an absolute path.
        args: of the command.
        env: variables beside this program's own.
        api_version: in which it is asked.
        mode: whether it asks a person: Never, IfAvailable, Always.
        install_hint: what to do where it is missing.
        cluster: what it is told of the server; None: nothing.
    """

    context: str
    command: str
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    api_version: str
    mode: str
    install_hint: str
    cluster: Json | None

    @classmethod
    def of(cls, choice: Choice) -> Plugin:
        """The plugin of a context's user.

        Raises:
            KubeClusterError: a field of `exec` is none that can be used; it is named.
        """
        section, where = choice.user["exec"], choice.context
        if not isinstance(section, dict):
            raise _wrong(where, "exec", section, "a mapping with `command`")
        command, args, env = section.get("command"), section.get("args") or [], section.get("env") or []
        if not isinstance(command, str) or not command:
            raise _wrong(where, "exec.command", command, "the name of a program")
        if not isinstance(args, list):
            raise _wrong(where, "exec.args", args, "a list of words")
        if not isinstance(env, list) or not all(isinstance(item, dict) and item.get("name") for item in env):
            raise _wrong(where, "exec.env", env, "a list of `name` and `value`")
        version, mode = section.get("apiVersion"), section.get("interactiveMode") or _IF_AVAILABLE
        if version not in _VERSIONS:
            raise _wrong(where, "exec.apiVersion", version, " or ".join(_VERSIONS))
        if mode not in (_NEVER, _IF_AVAILABLE, ALWAYS):
            raise _wrong(where, "exec.interactiveMode", mode, "Never, IfAvailable or Always")
        return cls(
            context=where,
            command=command,
            args=tuple(map(str, args)),
            env=tuple((str(item["name"]), str(item.get("value", ""))) for item in env),
            api_version=version,
            mode=mode,
            install_hint=str(section.get("installHint") or "").strip(),
            cluster=_told(choice.cluster) if section.get("provideClusterInfo") else None,
        )

    def question(self, *, is_interactive: bool) -> str:
        """What the plugin finds in KUBERNETES_EXEC_INFO."""
        spec: Json = {"interactive": is_interactive} | ({"cluster": self.cluster} if self.cluster is not None else {})
        return json.dumps({"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec})

    async def ask(self, timing: Timing, *, may_ask: bool) -> Grant:
        """Run it, and end it where this is cancelled.

        Args:
            timing: its `plugin_seconds` are the most that it takes.
            may_ask: whether a person waits who can answer: it gets the terminal, where there is one.

        Raises:
            KubeClusterError: it fails, gives nothing that can be used, or does not end in time.
        """
        is_interactive = may_ask and self.mode != _NEVER and _has_terminal()
        if self.mode == ALWAYS and not is_interactive:
            raise self._failed("it asks a person for something, and there is no terminal here", self._by_hand())
        run = _Run(self, timing, is_interactive=is_interactive)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def work() -> None:
            try:
                run.wait()
            except Exception as error:  # noqa: BLE001 - whoever waits has to hear of it
                run.failure = error
                run.end()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(None))

        thread = threading.Thread(target=work, name="gpudask-credential-plugin", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # Python ends: from 3.12 on it starts no thread then. What else runs here waits as well
            run.wait_without_threads()
            return self._read(run, timing)
        try:
            await ended
        finally:
            run.end()
        return self._read(run, timing)

    def _read(self, run: _Run, timing: Timing) -> Grant:
        said = run.errors.decode(errors="replace").strip()[-_MOST_CHARACTERS:]
        if run.is_late:
            raise self._failed(f"{self.command!r} did not end within {timing.plugin_seconds:g} s", self._by_hand())
        if isinstance(run.failure, FileNotFoundError):
            install = self.install_hint or f"Install {self.command!r}, which your kubeconfig starts for a token"
            what = f"{self.command!r} is not installed, or not on PATH"
            raise self._failed(what, f"{install}, or put it on PATH") from run.failure
        if isinstance(run.failure, RuntimeError):
            what = f"Python ends, and cannot run {self.command!r} any more ({run.failure})"
            raise self._failed(what, self._by_hand()) from run.failure
        if run.failure is not None:
            strerror = getattr(run.failure, "strerror", None) or run.failure
            step = self.install_hint or f"Install {self.command!r}, which your kubeconfig starts for a token"
            raise self._failed(f"{self.command!r} cannot be started: {strerror}", step) from run.failure
        if run.code:
            raise self._failed(f"{self.command!r} says: {said or f'exit code {run.code}'}", self._by_hand())
        try:
            return grant_of(run.output.decode("utf-8-sig"))
        except ValueError as error:
            what = f"{self.command!r} gave no token and no certificate ({error})"
            raise self._failed(what, self._by_hand()) from error

    def _failed(self, reason: str, step: str) -> KubeClusterError:
        what = f"no credentials for context {self.context!r} of the kubeconfig"
        return KubeClusterError(what, reason=reason, next_step=step)

    def _by_hand(self) -> str:
        return f"Run it by hand to see what it wants: {shlex.join([self.command, *self.args])}"


class _Run:
    """One run of a plugin. `wait` is called in a thread, `end` in another; the rest is read after `wait`."""

    def __init__(self, plugin: Plugin, timing: Timing, *, is_interactive: bool) -> None:
        self.output, self.errors = bytearray(), bytearray()
        self.code = 0
        self.failure: Exception | None = None
        self.is_late = False
        self._plugin, self._timing, self._is_interactive = plugin, timing, is_interactive
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False
        self._shown = -1  # how much of what it says a person has seen; -1: nothing is to be seen yet

    def wait(self) -> None:
        """Start it, and return when it has ended or its time is over."""
        try:
            process = self._start()
        except (OSError, ValueError) as error:
            self.failure = error
            return
        if process is None:
            return
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [
            threading.Thread(target=self._collect, args=(process.stdout, self.output), daemon=True),
            threading.Thread(target=self._collect, args=(process.stderr, self.errors), daemon=True),
        ]
        for reader in readers:
            reader.start()
        limit = time.monotonic() + self._timing.plugin_seconds
        try:
            self.code = self._ended(process, limit)
        except subprocess.TimeoutExpired:
            self.is_late = True
            self.end()
        for reader in readers:
            reader.join(_PIPE_SECONDS)

    def wait_without_threads(self) -> None:
        """The same as `wait`, in the thread that calls it, which waits for nothing else meanwhile."""
        try:
            process = self._start()
            assert process is not None, "nobody has ended it"
            output, errors = process.communicate(timeout=self._timing.plugin_seconds)
        except subprocess.TimeoutExpired:
            self.is_late = True
            self.end()
        except (OSError, ValueError, RuntimeError) as error:  # the last: Windows reads by threads
            self.failure = error
            self.end()
        else:
            self.code = process.returncode
            self.output += output[:_MOST_BYTES]
            self.errors += errors[:_MOST_BYTES]

    def end(self) -> None:
        """Kill it, where it still runs."""
        with self._lock:
            self._is_over = True
            process = self._process
        if process is None or process.poll() is not None:
            return
        with contextlib.suppress(OSError):
            if _OWN_GROUP and not self._is_interactive:
                os.killpg(process.pid, signal.SIGKILL)  # what it started, too: that would hold its pipes
            else:
                process.kill()

    def _start(self) -> subprocess.Popen[bytes] | None:
        plugin = self._plugin
        environment = os.environ | dict(plugin.env)
        environment["KUBERNETES_EXEC_INFO"] = plugin.question(is_interactive=self._is_interactive)
        # Windows starts `aws` only where it is told that this is aws.cmd.
        program = shutil.which(plugin.command, path=environment.get("PATH")) or plugin.command
        with self._lock:
            if self._is_over:
                return None
            self._process = subprocess.Popen(
                [program, *plugin.args],
                stdin=None if self._is_interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                # Ctrl-C is for the program alone; one that asks has to have the terminal, and Ctrl-C with it.
                start_new_session=_OWN_GROUP and not self._is_interactive,
            )
            return self._process

    def _ended(self, process: subprocess.Popen[bytes], limit: float) -> int:
        """Its exit code. What it says while it waits for a person, such as a code to enter, is shown to that one."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(self._timing.plugin_shown_seconds, self._timing.plugin_seconds))
        with self._lock:
            self._shown = 0
        self._show()
        return process.wait(max(0.0, limit - time.monotonic()))

    def _collect(self, pipe: IO[bytes], into: bytearray) -> None:
        with contextlib.suppress(OSError, ValueError), pipe:
            while part := os.read(pipe.fileno(), 1 << 16):
                into += part[: _MOST_BYTES - len(into)]
                if into is self.errors:
                    self._show()

    def _show(self) -> None:
        with self._lock:
            if self._shown < 0:
                return
            new, self._shown = bytes(self.errors[self._shown :]), len(self.errors)
        if new and sys.stderr is not None:
            sys.stderr.write(new.decode(errors="replace"))
            sys.stderr.flush()


def grant_of(text: str) -> Grant:
    """What a plugin printed.

    Raises:
        ValueError: it is no ExecCredential with a token or a certificate, or its end is no time.
    """
    content = json.loads(text)
    status = content.get("status") if isinstance(content, dict) else None
    if not isinstance(status, dict):
        raise ValueError("its answer has no `status`")
    token, certificate, key = (status.get(name) or "" for name in ("token", "clientCertificateData", "clientKeyData"))
    if not all(isinstance(part, str) for part in (token, certificate, key)):
        raise ValueError("token, clientCertificateData and clientKeyData are text")
    if not token and not (certificate and key):
        raise ValueError("its status has neither `token` nor `clientCertificateData` with `clientKeyData`")
    expires = status.get("expirationTimestamp")
    return Grant(token.strip(), certificate, key, None if expires is None else time_of(expires))


def time_of(text: Any) -> datetime:
    """A time as RFC 3339 writes it.

    Raises:
        ValueError: it is none.
    """
    found = _TIME.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"expirationTimestamp {text!r} is no time such as 2026-01-31T12:00:00Z")
    day, minute, second, fraction, zone = found.groups()
    second = min(second, "59")  # a leap second
    zone = "+00:00" if zone in {"Z", "z"} else zone
    try:
        return datetime.fromisoformat(f"{day}T{minute}:{second}.{(fraction or '')[:6]:0<6}{zone}").astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"expirationTimestamp {text!r} is no time: {error}") from error


def _told(cluster: Json) -> Json:
    """What a plugin with `provideClusterInfo` is told of the server, with the settings of its own beside it."""
    told = {field: cluster[field] for field in _OF_CLUSTER if cluster.get(field)}
    extensions = cluster.get("extensions")
    for item in extensions if isinstance(extensions, list) else []:
        if isinstance(item, dict) and item.get("name") == f"{_API}/exec":
            told["config"] = item.get("extension")
    return told


def _has_terminal() -> bool:
    try:
        return sys.stdin is not None and os.isatty(sys.stdin.fileno())
    except (OSError, ValueError):  # a notebook's has no number
        return False


def _wrong(context: str, field: str, value: Any, wanted: str) -> KubeClusterError:
    return KubeClusterError(
        f"context {context!r} of the kubeconfig cannot be used",
        reason=f"its user's {field} is {value!r}",
        next_step=f"Write {wanted} there",
    )
