import copy
from pathlib import Path

import pytest
import yaml

from gpudask.api.cron_job import CronJobSpec
from gpudask.api.job import JobSpec
from gpudask.api.resource import API_VERSION, CRON_JOB_KIND, JOB_KIND, KIND
from gpudask.api.spec import Spec
from gpudask.api.base import number
from gpudask.jobs.cron.schedule import parse_schedule
from local.demo.overlay import IMAGE, localize, without_devices
from tests.kubectl import Kubectl

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
JOBS = [path for path in EXAMPLES if path.stem in ("job", "cron-job")]
MANIFESTS = [path for path in EXAMPLES if path not in JOBS]
every_job = pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
every_manifest = pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)


def cluster(*pools: dict, **spec: object) -> dict:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "demo"},
        "spec": {"image": "registry.example/dask:1", "pools": list(pools), **spec},
    }


def env(pool: dict) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in pool.get("env", [])}


@every_manifest
def test_an_example_obeys_the_models_as_it_is_and_localized(path: Path):
    manifest = yaml.safe_load(path.read_text())

    assert (manifest["apiVersion"], manifest["kind"]) == (API_VERSION, KIND)
    Spec.model_validate(manifest["spec"])
    Spec.model_validate(localize(manifest)["spec"])


@every_job
def test_the_example_of_a_job_obeys_its_models(path: Path):
    manifest = yaml.safe_load(path.read_text())

    assert manifest["apiVersion"] == API_VERSION
    model = {JOB_KIND: JobSpec, CRON_JOB_KIND: CronJobSpec}[manifest["kind"]]
    model.model_validate(manifest["spec"])


def test_the_example_of_a_cron_job_has_times():
    spec = yaml.safe_load(next(path for path in JOBS if path.stem == "cron-job").read_text())["spec"]
    assert parse_schedule(spec["schedule"], spec["timeZone"]).after(0.0)


@pytest.mark.api
@every_job
def test_the_api_server_takes_the_example_of_a_job(path: Path, in_namespace: Kubectl):
    in_namespace("apply", "--dry-run=server", "--validate=strict", "-f", str(path))


@pytest.mark.api
@every_manifest
def test_the_api_server_takes_an_example_as_it_is_and_localized(path: Path, in_namespace: Kubectl):
    strictly = ("apply", "--dry-run=server", "--validate=strict", "-f")

    in_namespace(*strictly, str(path))
    in_namespace(*strictly, "-", stdin=yaml.safe_dump(localize(yaml.safe_load(path.read_text()))))


@every_manifest
def test_localized_pods_at_full_size_fit_two_nodes_of_2_cores_and_24_gib(path: Path):
    spec = Spec.model_validate(localize(yaml.safe_load(path.read_text()))["spec"])
    cores = number(spec.scheduler.resources["cpu"])
    gibibytes = number(spec.scheduler.resources["memory"]) / 2**30
    for pool in spec.pools:
        pods = pool.autoscale.max if pool.autoscale else pool.replicas or 1
        cores += pods * number(pool.resources["cpu"])
        gibibytes += pods * number(pool.resources["memory"]) / 2**30

    # On one real machine of that size, together with the control plane.
    assert cores <= 1.5
    assert gibibytes <= 12


def test_every_image_is_the_local_one_and_is_never_pulled():
    spec = localize(cluster({"name": "cpu", "image": "mine"}, scheduler={"image": "mine"}))["spec"]

    assert (spec["image"], spec["imagePullPolicy"]) == (IMAGE, "Never")
    assert "image" not in spec["pools"][0]
    assert "image" not in spec["scheduler"]


def test_a_gpu_pool_runs_without_devices_one_worker_for_each():
    (pool,) = localize(cluster({"name": "gpu", "gpu": {"count": 4}}))["spec"]["pools"]

    assert env(pool) == {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC": "1"}


def test_a_cpu_pool_gets_no_such_switch():
    (pool,) = localize(cluster({"name": "cpu"}))["spec"]["pools"]

    assert "env" not in pool


def test_a_plain_dask_worker_beside_gpus_needs_no_switch():
    (pool,) = localize(cluster({"name": "gpu", "gpu": {"count": 2, "launcher": "dask"}}))["spec"]["pools"]

    assert "env" not in pool


def test_the_users_own_variables_stay():
    mine = {"name": "MINE", "value": "1"}
    (pool,) = localize(cluster({"name": "gpu", "gpu": {}, "env": [mine]}))["spec"]["pools"]

    assert mine in pool["env"]
    assert len(pool["env"]) == 3


def test_idle_pools_shrink_soon_and_written_threads_stay():
    pools = [{"name": "a", "nthreads": 2, "autoscale": {"max": 3}}, {"name": "b", "replicas": 2}]
    first, second = localize(cluster(*pools))["spec"]["pools"]

    assert first["autoscale"] == {"max": 3, "idleTimeout": "10s"}
    assert (first["nthreads"], second["nthreads"]) == (2, 1)
    assert "autoscale" not in second


def test_stand_in_gpus_change_nothing_but_what_asks_the_driver():
    manifest = cluster({"name": "cpu"}, {"name": "gpu", "gpu": {"count": 2}, "resources": {"memory": "2Gi"}})
    changed = without_devices(manifest)

    gpu_pool = changed["spec"]["pools"][1]
    assert env(gpu_pool) == {"CUDA_VISIBLE_DEVICES": "0,1", "DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC": "1"}
    del gpu_pool["env"]
    assert changed == manifest


def test_the_manifest_it_was_given_is_left_alone():
    manifest = cluster({"name": "gpu", "gpu": {}})
    before = copy.deepcopy(manifest)

    localize(manifest)

    assert manifest == before
