"""The doctor's judgement of what was installed, and of rights: facts in, findings out."""

from gpudask.api import Json

from pathlib import Path

import pytest
import yaml

from gpudask.api import crd
from gpudask.cli.doctor.checks import judge, unreachable
from gpudask.cli.doctor.facts import Facts, Level, watched
from gpudask.cli.doctor.rights import CLEAN_UP, HISTORY, MIRROR, OPERATOR, Right, of_key
from tests.builders import a_pool
from tests.cli.doctor_builders import (
    OURS,
    STOCK,
    VERSION,
    a_body,
    a_definition,
    a_deployment,
    a_stock_deployment,
    an_operator_pod,
    found,
    well,
    only_fault,
)

GOLDEN = Path(__file__).parents[1] / "chart" / "golden"
ROOT = Path(__file__).parents[2]


def test_a_healthy_cluster_has_no_finding_but_good_ones():
    assert found(well()) == []
    assert [item.check for item in judge(well(), VERSION)] == [
        "gpudask",
        "API server",
        "resource definition",
        "operator",
        "operator's rights",
        "your rights",
        "stock Dask operator",
        "GPU nodes",
        "images",
        "clusters",
        "pools",
    ]


@pytest.mark.parametrize(
    ("definitions", "text", "level"),
    [
        ({"gpudaskjobs": {}}, "gpudaskjobs.gpudask.dev is not installed: `gpudask run`", Level.WARNING),
        ({"gpudaskcronjobs": {}}, "gpudaskcronjobs.gpudask.dev is not installed", Level.WARNING),
        ({"gpudaskjobs": crd.render_cron_job()}, "gpudaskjobs.gpudask.dev has another schema", Level.WARNING),
    ],
)
def test_definitions_of_jobs_that_are_missing_or_differ_are_told(definitions: Json, text: str, level: Level):
    fault = only_fault(well(job_definitions=definitions))
    assert fault.level == level
    assert text in fault.text


def test_definitions_of_jobs_that_are_as_here_or_may_not_be_read_are_no_finding():
    whole = {"gpudaskjobs": crd.render_job(), "gpudaskcronjobs": crd.render_cron_job()}
    assert found(well(job_definitions=whole)) == found(well(job_definitions={})) == []


def test_programs_find_the_versions_of_what_was_checked():
    versions = {item.check: item.version for item in judge(well(deployments=[a_deployment(version="0.0.9")]), VERSION)}

    assert {check: version for check, version in versions.items() if version} == {
        "gpudask": VERSION, "API server": "v1.36.3", "operator": "0.0.9"
    }  # fmt: skip


def changed(**fields: Json) -> Json:
    """Our definition with these fields of the spec's schema, None for one that is not there."""
    definition = a_definition()
    properties = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    for name, schema in fields.items():
        properties.pop(name) if schema is None else properties.update({name: schema})
    return definition


def conditioned(kind: str, status: str, message: str) -> Json:
    condition = {"type": kind, "status": status, "message": message}
    return crd.render() | {"status": {"conditions": [{"type": "Established", "status": "True"}, condition]}}


def unserved() -> Json:
    definition = a_definition()
    definition["spec"]["versions"][0]["name"] = "v1beta7"
    return definition


def stored(*versions: str) -> Json:
    definition = a_definition()
    return definition | {"status": definition["status"] | {"storedVersions": list(versions)}}


OVER_QUOTA = {"name": "cpu", "desired": 3, "ready": 1, "message": 'pods "x" is forbidden: exceeded quota: q'}
UNPULLED = {"name": "cpu", "desired": 1, "message": "image not found"}
ACCEPTED = {"type": "Accepted", "status": "False", "reason": "TemplateRefused", "message": "unknown field"}


@pytest.mark.parametrize(
    ("changes", "check", "level", "said", "mend"),
    [
        (
            {"version": {"gitVersion": "v1.28.1", "minor": "28+"}},
            "API server",
            Level.PROBLEM,
            "1.29 is the old",
            "1.29",
        ),
        ({"crd": {}}, "resource definition", Level.PROBLEM, "is not installed", "helm install gpudask"),
        (
            {"crd": unserved()},
            "resource definition",
            Level.PROBLEM,
            "serves v1beta7, this program speaks v1alpha1",
            "kubectl apply --server-side",
        ),
        ({"crd": crd.render()}, "resource definition", Level.PROBLEM, "is not established", "kubectl describe crd"),
        (
            {"crd": conditioned("NamesAccepted", "False", '"gdc" is already in use')},
            "resource definition",
            Level.PROBLEM,
            '"gdc" is already in use',
            "kubectl describe crd",
        ),
        (
            {"crd": conditioned("Terminating", "True", "")},
            "resource definition",
            Level.PROBLEM,
            "is being deleted, and all clusters with it",
            "kubectl describe crd",
        ),
        (
            {"crd": changed(rollout=None)},
            "resource definition",
            Level.WARNING,
            "is older than this program: it lacks spec.rollout",
            "kubectl apply --server-side --force-conflicts -f charts/gpudask/crds",
        ),
        (
            {"crd": changed(novelty={"type": "string"})},
            "resource definition",
            Level.WARNING,
            "is newer than this program, which does not know: spec.novelty",
            "pip install --upgrade '.[cli,image]'",
        ),
        (
            {"crd": changed(image={"type": "integer"})},
            "resource definition",
            Level.WARNING,
            "has another schema than this version: spec.image",
            "if this program is the newer one",
        ),
        (
            {"crd": stored("v1alpha0", "v1alpha1")},
            "resource definition",
            Level.WARNING,
            "may still be stored as v1alpha0",
            "kubectl get gdc -A -o json | kubectl replace -f -",
        ),
        (
            {"crd": None, "served": None, "refused": {"crd": "forbidden"}},
            "resource definition",
            Level.UNKNOWN,
            "forbidden",
            "gpudask doctor",
        ),
        ({"crd": None, "served": False}, "resource definition", Level.PROBLEM, "the server knows no", "helm install"),
        ({"deployments": []}, "operator", Level.PROBLEM, "no deployment of it", "helm install"),
        (
            {"deployments": [a_deployment(ready=0)]},
            "operator",
            Level.PROBLEM,
            "gpudask in namespace system has no pod that is ready: it has no pod",
            "kubectl describe deployment/gpudask -n system",
        ),
        (
            {
                "deployments": [a_deployment(ready=0)],
                "operator_pods": [an_operator_pod({"reason": "ImagePullBackOff", "message": "no such image"})],
            },
            "operator",
            Level.PROBLEM,
            "gpudask-1: ImagePullBackOff: no such image",
            "kubectl describe deployment/gpudask -n system",
        ),
        (
            {
                "deployments": [a_deployment(ready=0)],
                "operator_pods": [an_operator_pod({"reason": "CrashLoopBackOff"}, "Traceback\nSettingsError: no such")],
            },
            "operator",
            Level.PROBLEM,
            "gpudask-1: CrashLoopBackOff; it said last: SettingsError: no such",
            "kubectl logs deployment/gpudask -n system",
        ),
        (
            {
                "deployments": [
                    a_deployment(
                        ready=0, conditions=[{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]
                    )
                ]
            },
            "operator",
            Level.PROBLEM,
            "exceeded quota",
            "kubectl describe deployment/gpudask -n system",
        ),
        (
            {"deployments": [a_deployment(ready=0, replicas=0)], "clusters": []},
            "operator",
            Level.PROBLEM,
            "is scaled to 0",
            "kubectl scale deployment/gpudask -n system --replicas=1",
        ),
        (
            {"deployments": [a_deployment(version="9.9")]},
            "operator",
            Level.WARNING,
            "runs version 9.9, this program is 0.1",
            "from a checkout of 9.9",
        ),
        (
            {"deployments": [a_deployment(version="0.0.9")]},
            "operator",
            Level.WARNING,
            "runs version 0.0.9, this program is 0.1",
            "helm upgrade gpudask charts/gpudask -n system",
        ),
        (
            {"deployments": [a_deployment(version="")]},
            "operator",
            Level.WARNING,
            "does not say in which version",
            "helm upgrade gpudask",
        ),
        (
            {"deployments": [a_deployment(), a_deployment("second", namespaces="lab")]},
            "operator",
            Level.PROBLEM,
            "gpudask in namespace system and second in namespace system both run the clusters of lab",
            "helm uninstall second -n system",
        ),
        (
            {"deployments": [a_deployment(), a_deployment("second")]},
            "operator",
            Level.PROBLEM,
            "both run the clusters of all namespaces",
            "watchNamespaces",
        ),
        (
            {"operator_may_not": [("team", Right("", "pods", "create")), ("", Right("policy", "x", "list"))]},
            "operator's rights",
            Level.PROBLEM,
            "create pods in team, list x.policy in all namespaces",
            "--set rbac.create=true",
        ),
        (
            {"operator_may_not": [("", *CLEAN_UP)]},
            "operator's rights",
            Level.WARNING,
            "it may delete no cluster: those whose program was killed, or that ask for it otherwise, stay",
            "--set deleteAfter=true",
        ),
        ({"operator_may_not": None}, "operator's rights", Level.UNKNOWN, "could not be looked at", "gpudask doctor"),
        (
            {"may_not": [Right("", "pods/log", "get")]},
            "your rights",
            Level.WARNING,
            "you may not: get pods/log (for gpudask logs)",
            "kubectl create rolebinding gpudask-edit -n lab --clusterrole=edit --user=alice",
        ),
        (
            {"may_not": [Right("", "pods/log", "get")], "user": "system:serviceaccount:team:bot"},
            "your rights",
            Level.WARNING,
            "you may not",
            "--serviceaccount=team:bot",
        ),
        (
            {"deployments": [a_deployment(mirror=True), a_stock_deployment()], "dask_kinds": OURS},
            "mirror",
            Level.PROBLEM,
            "the stock Dask operator runs too (their-operator in namespace dask)",
            "--set mirror.enabled=false",
        ),
        (
            {"deployments": [a_deployment(mirror=True)], "dask_kinds": STOCK},
            "mirror",
            Level.PROBLEM,
            "DaskAutoscaler, DaskCluster, DaskJob, DaskWorkerGroup of kubernetes.dask.org are the stock",
            "kubectl replace -f crds/mirror.yaml",
        ),
        (
            {"deployments": [a_deployment(mirror=True)], "dask_kinds": {"DaskCluster": ["gpudask"]}},
            "mirror",
            Level.PROBLEM,
            "DaskWorkerGroup, DaskAutoscaler, DaskJob of kubernetes.dask.org are missing",
            "kubectl apply --server-side -f crds/mirror.yaml",
        ),
        (
            {"deployments": [a_deployment(), a_stock_deployment(labelled=False)], "dask_kinds": OURS},
            "mirror",
            Level.WARNING,
            "are still our chart's, and the stock operator runs on them",
            "helm upgrade of the stock chart",
        ),
        (
            {"deployments": [a_deployment(namespaces="team")]},
            "cluster lab/demo",
            Level.PROBLEM,
            "no operator runs namespace lab",
            "helm upgrade gpudask charts/gpudask -n system --reuse-values --set 'watchNamespaces={team,lab}'",
        ),
        (
            {"deployments": [a_deployment(namespaces="team")], "clusters": []},
            "clusters",
            Level.WARNING,
            "no operator runs clusters in namespace lab",
            "watchNamespaces={team,lab}",
        ),
        (
            {"clusters": [a_body(status={})]},
            "cluster lab/demo",
            Level.WARNING,
            "the operator has reported nothing yet",
            "kubectl logs deployment/gpudask -n system",
        ),
        (
            {"clusters": [a_body(status={"observedGeneration": 1})]},
            "cluster lab/demo",
            Level.WARNING,
            "has not looked at generation 2",
            "kubectl logs deployment/gpudask -n system",
        ),
        (
            {"clusters": [a_body(status={"observedGeneration": 2, "conditions": [ACCEPTED]})]},
            "cluster lab/demo",
            Level.WARNING,
            "Accepted is False, TemplateRefused: unknown field",
            "kubectl edit gdc demo -n lab",
        ),
        (
            {"clusters": [a_body(a_pool("cpu"), status={"observedGeneration": 2, "pools": [OVER_QUOTA]})]},
            "pool lab/demo cpu",
            Level.WARNING,
            '1 of 3 pods are ready: pods "x" is forbidden: exceeded quota: q',
            "raise the quota, or lower the pool's size: kubectl describe quota -n lab",
        ),
        (
            {"clusters": [a_body(a_pool("cpu"), status={"observedGeneration": 2, "pools": [UNPULLED]})]},
            "pool lab/demo cpu",
            Level.WARNING,
            "0 of 1 pods are ready: image not found",
            "kubectl describe gdc demo -n lab",
        ),
        ({"clusters": None, "refused": {"clusters": "no"}}, "clusters", Level.UNKNOWN, "no", "gpudask doctor"),
    ],
)
def test_one_fault_is_one_finding_with_a_remedy(changes: Json, check: str, level: Level, said: str, mend: str):
    finding = only_fault(well(**changes))

    assert (finding.check, finding.level) == (check, level)
    assert said in finding.text
    assert mend in finding.mend


@pytest.mark.parametrize(
    ("changes", "check", "said"),
    [
        ({"dask_kinds": OURS}, "stock Dask operator", "it is not installed"),
        ({"dask_kinds": OURS}, "mirror", "off; the definitions that our chart once installed for it are kept"),
        ({"dask_kinds": OURS, "deployments": [a_deployment(mirror=True)]}, "mirror", "on: the stock Dask client sees"),
        ({"dask_kinds": STOCK}, "stock Dask operator", "it does not run; its resource definitions are still installed"),
        (
            {"dask_kinds": STOCK, "deployments": [a_deployment(), a_stock_deployment()]},
            "stock Dask operator",
            "it runs beside this one, with kinds of its own: their-operator in namespace dask",
        ),
        ({"crd": None, "refused": {"crd": "forbidden"}}, "resource definition", "serves v1alpha1"),
        ({"deployments": [a_deployment(namespaces="a"), a_deployment("b", namespaces="lab")]}, "operator", "0.1.0"),
    ],
)
def test_what_is_no_fault_is_no_alarm(changes: Json, check: str, said: str):
    facts = well(**({"clusters": []} | changes))
    findings = [item for item in judge(facts, VERSION) if item.check == check]

    assert {item.level for item in findings} == {Level.OK}
    assert said in findings[0].text


def test_a_pool_that_has_its_pods_or_whose_status_is_old_is_no_alarm():
    for status in (
        {"observedGeneration": 2, "pools": [OVER_QUOTA | {"ready": 3}]},
        {"observedGeneration": 2, "pools": [OVER_QUOTA | {"message": ""}]},
    ):
        assert found(well(clusters=[a_body(a_pool("cpu"), status=status)])) == []
    unseen = well(nodes=None, clusters=[a_body(status={"observedGeneration": 2, "pools": [OVER_QUOTA]})])
    assert "pool lab/demo cpu" in [check for check, _, _ in found(unseen)], "whose nodes may not be listed"
    old = well(clusters=[a_body(a_pool("cpu"), status={"observedGeneration": 1, "pools": [OVER_QUOTA]})])
    assert only_fault(old).check == "cluster lab/demo"


def test_a_stored_spec_that_is_not_valid_is_named():
    facts = well(clusters=[a_body(a_pool("cpu", replicas=1, autoscale={"max": 2}))])

    assert [(check, level) for check, level, _ in found(facts)] == [("cluster lab/demo", Level.PROBLEM)]


def test_no_server_is_one_problem():
    assert [(item.check, item.level) for item in unreachable("refused")] == [("API server", Level.PROBLEM)]


def test_somebody_who_may_not_list_deployments_is_told_what_discovery_tells():
    facts = well(deployments=None, crd=None, may_not=[], nodes=None, clusters=[a_body(status={})])
    levels = {item.check: item.level for item in judge(facts, VERSION)}

    assert levels["stock Dask operator"] == levels["resource definition"] == Level.OK
    assert levels["operator"] == Level.UNKNOWN
    assert levels["cluster lab/demo"] == Level.WARNING


def test_where_no_operator_is_it_is_said_once():
    facts = well(deployments=[], clusters=[a_body(status={})])

    assert [check for check, _, _ in found(facts)] == ["operator"]


@pytest.mark.parametrize(("value", "expected"), [("", [""]), ("a, b", ["a", "b"])])
def test_the_namespaces_that_an_operator_watches(value: str, expected: list[str]):
    assert watched(a_deployment(namespaces=value)) == expected


def granted(file: str) -> set[Right]:
    """What a chart's manifests grant the operator."""
    items = [
        item for item in yaml.safe_load_all((GOLDEN / file).read_text()) if item["kind"] in ("ClusterRole", "Role")
    ]
    return {
        Right(group, resource, verb, name)
        for item in items
        if item["kind"] in ("ClusterRole", "Role")
        if item["metadata"]["name"] in ("gpudask", "gpudask-key")
        for rule in item["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def test_the_operators_rights_are_those_of_the_chart():
    own = {*OPERATOR, *CLEAN_UP, *HISTORY, *of_key("gpudask-key")}

    assert granted("rbac-everywhere.yaml") == own
    assert granted("rbac-mirror.yaml") == own | set(MIRROR)


def test_the_charts_kinds_of_the_mirror_are_known_as_ours():
    shipped = yaml.safe_load_all((ROOT / "charts" / "gpudask" / "files" / "mirror.yaml").read_text())
    kinds = {item["spec"]["names"]["kind"]: item["spec"]["names"]["categories"] for item in shipped}

    assert set(kinds) == set(OURS)
    assert Facts(dask_kinds=kinds).foreign_kinds == []
