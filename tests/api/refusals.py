"""Invalid manifests with the words that refuse them: both stand in one file of tests/api/invalid, to be read as one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpudask.api import Json
from gpudask.api.cron_job import parse_cron_job
from gpudask.api.job import parse_job
from gpudask.api.resource import (
    API_VERSION,
    CRON_JOB_KIND,
    CRON_JOB_PLURAL,
    JOB_KIND,
    JOB_PLURAL,
    KIND,
    PLURAL,
    InvalidSpecError,
    parse,
)
from local.control_plane.kube_api import KubeApi

DIRECTORY = Path(__file__).with_name("invalid")
SERVER = "# The API server: "
OPERATOR = "# The operator: "
ACCEPTS = "accepts it"
PARSERS: dict[str, Callable[[Json], Any]] = {KIND: parse, JOB_KIND: parse_job, CRON_JOB_KIND: parse_cron_job}

# What the API server puts around a message that is of no field.
_WRAPPING = re.compile(r"^GpuDask\w+ in version .* strict decoding error: ")
_PLURALS = {KIND: PLURAL, JOB_KIND: JOB_PLURAL, CRON_JOB_KIND: CRON_JOB_PLURAL}
_NOT_ALL_CHECKED = "some validation rules were not checked"


@dataclass(frozen=True)
class Refusal:
    """One invalid manifest: its text, and what each of the two who read it is expected to say, a line a fault."""

    path: Path
    manifest: str
    server: list[str]
    operator: list[str]

    @classmethod
    def read(cls, path: Path) -> Refusal:
        lines = path.read_text().splitlines(keepends=True)
        return cls(
            path,
            manifest="".join(line for line in lines if not line.startswith("#")),
            server=[line.removeprefix(SERVER).rstrip("\n") for line in lines if line.startswith(SERVER)],
            operator=[line.removeprefix(OPERATOR).rstrip("\n") for line in lines if line.startswith(OPERATOR)],
        )

    def write(self, *, server: list[str] | None = None, operator: list[str] | None = None) -> None:
        """Write new words into the file; those not given stay."""
        now = Refusal.read(self.path)
        heads = [SERVER + line for line in (server or now.server)]
        heads += [OPERATOR + line for line in (operator or now.operator)]
        self.path.write_text("".join(head + "\n" for head in heads) + self.manifest)


def all_refusals() -> list[Refusal]:
    return [Refusal.read(path) for path in sorted(DIRECTORY.glob("*.yaml"))]


def server_words(api: KubeApi, manifest: str) -> list[str]:
    """The faults that the API server finds in the manifest, as kubectl prints them."""
    path = f"/apis/{API_VERSION}/namespaces/default/{_PLURALS[yaml.safe_load(manifest)['kind']]}"
    answer = api.dry_run(path, manifest)
    assert answer["kind"] == "Status", f"accepted: {answer}"
    causes = [f"{cause['field']}: {cause['message']}" for cause in answer.get("details", {}).get("causes", ())]
    lines = (_WRAPPING.sub("", text) for text in causes or [answer["message"]])
    return [line for line in lines if _NOT_ALL_CHECKED not in line]


def operator_words(manifest: str) -> list[str]:
    """What the operator says when it finds the manifest stored."""
    body: dict[str, Any] = yaml.safe_load(manifest)
    body["metadata"] |= {"namespace": "default", "uid": "1"}
    try:
        PARSERS[body["kind"]](body)
    except InvalidSpecError as error:
        return str(error).split("; ")
    return [ACCEPTS]
