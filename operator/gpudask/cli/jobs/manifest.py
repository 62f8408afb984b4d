"""The flags of `gpudask run` -> a GpuDaskJob and the ConfigMap with its script. Pure, but for reading the script."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from gpudask.api import Json
from gpudask.api.resource import ANNOTATION_CREATION, API_VERSION, CLUSTER_NAME, JOB_KIND, MAX_CLUSTER_NAME
from gpudask.cli.output import CliError, Exit

MAX_SCRIPT_BYTES = 900_000  # a ConfigMap holds 1 MiB
_FILE = "script.py"
_PROGRAM = "/gpudask/program"
_NONCE_LENGTH = 8
# Of a runner with a GPU; the operator has the same for one without.
_ON_GPU_REQUESTS = {"cpu": "500m", "memory": "1Gi"}
_GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Program:
    """A program to run as a job.

    Attributes:
        name: the job's.
        script: its text.
        cluster: `spec.cluster` of the job.
        arguments: those of the script.
        image: of the runner, where it is another than the cluster's.
        on_gpu: whether the runner has a GPU itself.
        retries: how often it is run again when it fails.
        deadline: how long it may take, such as 1h; empty: for ever.
    """

    name: str
    script: str
    cluster: Json
    arguments: list[str] = field(default_factory=list)
    image: str = ""
    on_gpu: bool = False
    retries: int = 0
    deadline: str = ""


def read_script(path: str) -> str:
    """The text of the script.

    Raises:
        CliError: there is none, it is no text, or it is too large.
    """
    try:
        raw = Path(path).read_bytes()
    except IsADirectoryError as error:
        raise CliError(
            f"SCRIPT {path} is a directory: write one Python file; what it imports is in the image", Exit.USAGE
        ) from error
    except OSError as error:
        raise CliError(
            f"SCRIPT {path} cannot be read: {error.strerror}. Write a Python file's path", Exit.USAGE
        ) from error
    if len(raw) > MAX_SCRIPT_BYTES:
        raise CliError(
            f"SCRIPT {path} has {len(raw)} bytes, and a ConfigMap takes {MAX_SCRIPT_BYTES}: put data and modules into"
            " the image, or read them from storage",
            Exit.USAGE,
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CliError(
            f"SCRIPT {path} is not UTF-8 ({error.reason}): write a Python file in UTF-8", Exit.USAGE
        ) from error


def check_name(name: str) -> None:
    """Refuse what can be no job's name.

    Raises:
        CliError: it is none.
    """
    if re.fullmatch(CLUSTER_NAME, name) is None or len(name) > MAX_CLUSTER_NAME:
        raise CliError(
            f"--name {name}: write at most {MAX_CLUSTER_NAME} lower-case letters, digits and hyphens, a letter first"
            " and no hyphen last: the job's cluster has this name, too",
            Exit.USAGE,
        )


def job(program: Program, creation_id: str) -> Json:
    """The job, suspended: it must not run before its ConfigMap is there, which has to know the job's uid.

    Args:
        program: what it runs.
        creation_id: hexadecimal digits that nobody else has; by them its maker knows it where an answer was lost.
    """
    mount = {"name": "program", "mountPath": _PROGRAM, "readOnly": True}
    container: Json = {
        "name": "runner",
        "command": ["python", f"{_PROGRAM}/{_FILE}", *(_literal(argument) for argument in program.arguments)],
        "env": [{"name": "PYTHONUNBUFFERED", "value": "1"}],  # its lines are read while it runs
        "volumeMounts": [mount],
    }
    pod: Json = {
        "containers": [container],
        "volumes": [{"name": "program", "configMap": {"name": config_map_name(program.name, creation_id)}}],
    }
    if program.image:
        container["image"] = program.image
    if program.on_gpu:
        container["resources"] = {"requests": _ON_GPU_REQUESTS, "limits": {_GPU: 1}}
        pod["nodeSelector"] = {f"{_GPU}.present": "true"}
        pod["tolerations"] = [{"key": _GPU, "operator": "Exists", "effect": "NoSchedule"}]
    return {
        "apiVersion": API_VERSION,
        "kind": JOB_KIND,
        "metadata": {"name": program.name, "annotations": {ANNOTATION_CREATION: creation_id}},
        "spec": {
            "suspend": True,
            "runner": {"template": {"spec": pod}},
            "cluster": program.cluster,
            **({"retries": program.retries} if program.retries else {}),
            **({"activeDeadline": program.deadline} if program.deadline else {}),
        },
    }


def config_map(program: Program, creation_id: str, uid: str) -> Json:
    """The ConfigMap with the script, which goes with the job that has this uid."""
    owner = {"apiVersion": API_VERSION, "kind": JOB_KIND, "name": program.name, "uid": uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": config_map_name(program.name, creation_id), "ownerReferences": [owner]},
        "immutable": True,
        "data": {_FILE: program.script},
    }


def config_map_name(job_name: str, creation_id: str) -> str:
    """Its name: of this very creation, so that no other job's of the name is met, which may be on its way out."""
    return f"{job_name}-program-{creation_id[:_NONCE_LENGTH]}"


def _literal(argument: str) -> str:
    # Kubernetes puts variables in place of $(NAME), and one $ in place of two.
    return argument.replace("$", "$$")
