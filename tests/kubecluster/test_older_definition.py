"""A definition on the server that is older than the program: the error names the upgrade, and no misspelling does."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from gpudask import KubeClusterError
from gpudask.api import Json
from gpudask.api import crd
from gpudask.api.resource import JOB_KIND
from gpudask.kubecluster.errors import DEFINITION_STEP, name_older_definition
from gpudask.kubecluster.kube.jobs import create_job
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.manifest import Arguments, Shutdown, manifest
from tests.api.test_job import OWN, a_job
from tests.cli.invoke import invoke
from tests.conftest import CRD
from tests.kubectl import Kubectl
from tests.reconcile.stage import defined

OLDER = {
    "a field of a strict write": 'strict decoding error: unknown field "spec.idle.shutdownAfterDisconnect"',
    "one of a list": 'strict decoding error: unknown field "spec.pools[1].gpu.preImport"',
    "two": 'unknown field "spec.network", unknown field "spec.idle.deleteAfter"',
    "one of an apply": "failed to create typed patch object: .spec.overrides: field not declared in schema",
    "one that was required": 'GpuDaskCluster "mine" is invalid: spec.image: Required value',
}
NOT_OLDER = {
    "misspelt": 'strict decoding error: unknown field "spec.idle.deletAfter"',
    "misspelt beside one that is not": 'unknown field "spec.idle.deleteAfter", unknown field "spec.pols"',
    "an index too many": 'unknown field "spec.idle[0].deleteAfter"',
    "within a template": 'unknown field "spec.template.spec.nodeSelektor"',
    "required here, too": 'GpuDaskCluster "mine" is invalid: spec.pools[0].name: Required value',
    "something else": "spec.pools: Too many: 99: must have at most 32 items",
}


def refused(reason: str) -> KubeClusterError:
    return KubeClusterError("cannot create", reason=reason, next_step="See above", status=422)


@pytest.mark.parametrize("reason", OLDER.values(), ids=OLDER)
def test_what_this_program_has_and_the_server_refuses_names_the_upgrade(reason: str):
    told = name_older_definition(refused(reason))
    assert DEFINITION_STEP in str(told)
    assert (told.status, reason in told.reason) == (422, True)


@pytest.mark.parametrize("reason", NOT_OLDER.values(), ids=NOT_OLDER)
def test_what_is_wrong_here_too_stays_as_it_is(reason: str):
    error = refused(reason)
    assert name_older_definition(error) is error


def test_a_definition_of_jobs_is_named_as_what_it_is():
    reason = 'strict decoding error: unknown field "spec.failExitCodes"'
    assert "the definition of GpuDaskJobs on this server is older" in str(
        name_older_definition(refused(reason), JOB_KIND)
    )
    misspelt = refused('strict decoding error: unknown field "spec.failExitCode"')
    assert name_older_definition(misspelt, JOB_KIND) is misspelt


def test_the_docs_have_the_same_command():
    assert DEFINITION_STEP in (CRD.parents[1] / "charts" / "README.md").read_text()


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl on a server whose definition has neither the leases of programs nor a default image."""
    definition = yaml.safe_load(CRD.read_text())
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["idle"]["properties"]["shutdownAfterDisconnect"]
    spec["properties"]["idle"].pop("x-kubernetes-validations", None)
    spec["required"] = sorted({*spec.get("required", ()), "image"})
    path = tmp_path_factory.mktemp("older") / "crd.yaml"
    path.write_text(yaml.safe_dump(definition))
    jobs = path.with_name("jobs.yaml")
    jobs.write_text(yaml.safe_dump(without_exit_codes(crd.render_job())))
    with defined("older-definition", path) as kubectl:
        kubectl.define(jobs)
        yield kubectl


def without_exit_codes(definition: Json) -> Json:
    """The definition of jobs before they had `failExitCodes`, and counted refusals."""
    own = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del own["spec"]["properties"]["failExitCodes"], own["status"]["properties"]["refusals"]
    return definition


@pytest.mark.api
@pytest.mark.parametrize(
    ("made", "field"),
    [
        (manifest("mine", Arguments(image="me/dask:1"), shutdown=Shutdown("10m")), "shutdownAfterDisconnect"),
        (manifest("mine", Arguments()), "spec.image"),
    ],
    ids=["a field", "an image that is optional here"],
)
async def test_a_real_server_is_understood(older: Kubectl, monkeypatch: pytest.MonkeyPatch, made: Json, field: str):
    monkeypatch.setenv("KUBECONFIG", str(older.kubeconfig))
    server = await Server.connect("default")
    with pytest.raises(KubeClusterError, match=rf"older than this program: .*{field}.*{DEFINITION_STEP}"):
        await server.create(made)
    await server.close()


@pytest.mark.api
async def test_so_is_one_whose_definition_of_jobs_is_older(older: Kubectl, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBECONFIG", str(older.kubeconfig))
    server = await Server.connect("default")
    made = a_job(**OWN, failExitCodes=[3])
    with pytest.raises(KubeClusterError, match=rf"older than this program: .*failExitCodes.*{DEFINITION_STEP}"):
        await create_job(server, made)
    await server.close()


@pytest.mark.api
def test_the_doctor_names_what_it_lacks(older: Kubectl):
    result = invoke("doctor", "--kubeconfig", str(older.kubeconfig), "-o", "json")
    told = {item["text"]: item["mend"] for item in json.loads(result.stdout) if "jobs" in item["text"]}
    (of_jobs,) = [text for text in told if text.startswith("gpudaskjobs")]
    assert of_jobs.endswith("is older than this program: it lacks spec.failExitCodes, status.refusals")
    (of_cron_jobs,) = [text for text in told if text.startswith("gpudaskcronjobs")]
    assert of_cron_jobs.endswith("is not installed: GpuDaskCronJobs need it")
    assert set(told.values()) == {DEFINITION_STEP}
