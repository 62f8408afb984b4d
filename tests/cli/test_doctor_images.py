"""The doctor's judgement of images: the operator's default, and what Kubernetes could not pull."""

from __future__ import annotations

from gpudask.api import Json
from gpudask.cli.doctor.checks import judge
from gpudask.cli.doctor.facts import Facts, Level
from tests.builders import a_pool
from tests.cli.doctor_builders import VERSION, a_body, a_deployment, a_node, only_fault, well

DEFAULT = "registry.example/dask:1"
WHY = "pool cpu: demo-cpu-worker-0: ErrImagePull: not found"


def with_default(**changes: object) -> Facts:
    operator = a_deployment()
    operator["spec"]["template"]["spec"]["containers"][0]["env"].append(
        {"name": "GPUDASK_DEFAULT_IMAGE", "value": DEFAULT}
    )
    return well(**{"deployments": [operator], **changes})


def unpulled(**spec: object) -> Json:
    degraded = {"type": "Degraded", "status": "True", "reason": "ImageNotPulled", "message": WHY}
    return a_body(a_pool("cpu"), status={"observedGeneration": 2, "conditions": [degraded]}, **spec)


def said(facts: Facts) -> str:
    (text,) = [item.text for item in judge(facts, VERSION) if item.check == "images"]
    return text


def test_the_default_is_named_and_on_which_nodes_it_is():
    node = a_node("n1")
    node["status"]["images"] = [{"names": [DEFAULT]}]
    assert said(with_default(nodes=[node, a_node("n2")])) == f"the default is {DEFAULT}, on 1 nodes"
    assert said(with_default()).endswith("not pulled yet: the first cluster's pods do that")
    assert said(well()) == "no default: each cluster names its own (spec.image)"


def test_a_default_that_cannot_be_pulled_is_a_problem_with_its_cure():
    fault = only_fault(with_default(clusters=[unpulled(image=None)]))
    assert (fault.check, fault.level) == ("images", Level.PROBLEM)
    assert fault.text == f"cluster lab/demo has the default image {DEFAULT}: {WHY}"
    assert "make images" in fault.mend
    assert "--set defaults.image=" in fault.mend


def test_an_image_of_a_cluster_that_cannot_be_pulled_is_its_users_to_correct():
    fault = only_fault(with_default(clusters=[unpulled()]))
    assert (fault.text, fault.mend) == (
        f"cluster lab/demo: {WHY}",
        "correct image or imagePullSecrets: kubectl edit gdc demo -n lab",
    )
