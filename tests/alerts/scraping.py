"""A Prometheus of the test's own, with the rules of the chart."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from local.host.ports import free_ports
from tests.alerts.queries import ALERTS
from tests.eventually import eventually

JOB = "gpudask"
_TIMEOUT_SECONDS = 60  # of one request, also on a busy machine


@dataclass(frozen=True)
class Target:
    """An operator's metrics: their address as `host:port`, its pod, and the namespace in which it runs."""

    address: str
    pod: str
    namespace: str = "gpudask-system"


class QueryError(Exception):
    """Prometheus refuses a query; the text is its own."""


@dataclass(frozen=True)
class Server:
    """A Prometheus that runs."""

    url: str
    log: Path

    @classmethod
    @contextmanager
    def running(cls, program: Path, targets: list[Target], directory: Path) -> Iterator[Server]:
        """Prometheus with the chart's rules, which looks at all once a second; its files are in `directory`."""
        config, log = directory / "prometheus.yml", directory / "prometheus.log"
        config.write_text(yaml.safe_dump(_config(targets)))
        [port] = free_ports(1)
        command = [str(program), f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--query.lookback-delta=1m"]
        with log.open("w") as output:
            process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=subprocess.STDOUT)
        server = cls(f"http://127.0.0.1:{port}", log)
        try:
            eventually(server.is_ready, "Prometheus is ready", show=log.read_text)
            yield server
        finally:
            process.terminate()
            process.wait()

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=_TIMEOUT_SECONDS).is_success
        except httpx.TransportError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The value of an expression now: a vector of series.

        Raises:
            QueryError: it is not valid, or cannot be computed.
        """
        return list(self._get("query", query=expression)["result"])

    def over_time(self, expression: str, *, seconds: float = 10) -> list[dict[str, Any]]:
        """The values of an expression within the last seconds.

        Raises:
            QueryError: as in `query`.
        """
        end = time.time()
        return list(self._get("query_range", query=expression, start=end - seconds, end=end, step="1s")["result"])

    def rules(self) -> list[dict[str, Any]]:
        """The rules that it evaluates, with their health."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **parameters: Any) -> dict[str, Any]:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=_TIMEOUT_SECONDS)
        if answer.is_error:
            raise QueryError(answer.json().get("error", answer.text))
        return dict(answer.json()["data"])


def _config(targets: list[Target]) -> dict[str, Any]:
    """Scraped as the chart's monitors ask for it: a series' own namespace wins over the target's."""
    static = [
        {"targets": [target.address], "labels": {"namespace": target.namespace, "pod": target.pod}}
        for target in targets
    ]
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": JOB, "honor_labels": True, "static_configs": static}],
    }
