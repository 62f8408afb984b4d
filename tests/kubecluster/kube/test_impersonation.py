"""A kubeconfig's user who acts as somebody else: that one's rights count, on a real API server."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudask import KubeClusterError
from gpudask.kubecluster.kube.credentials import impersonation
from gpudask.kubecluster.kube.config import Choice
from gpudask.kubecluster.forward.pod_port import open_port
from gpudask.kubecluster.kube.server import Server
from tests.eventually import eventually
from tests.kubecluster import fake_server as fake
from tests.kubectl import Kubectl

REVIEWS = "authentication.k8s.io/v1"


@pytest.fixture
def as_jane(in_namespace: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    """The administrator acts as jane of the group testers, whose members may list clusters and forward ports."""
    for name, verb, resource, binding in (
        ("reader", "list", "gpudaskclusters.gpudask.dev", ("--group=testers",)),
        ("forwarder", "get,create", "pods/portforward", ("--user=jane",)),
    ):
        in_namespace("create", "role", name, f"--verb={verb}", f"--resource={resource}")
        in_namespace("create", "rolebinding", name, f"--role={name}", *binding)
    assert in_namespace.kubeconfig is not None
    config = yaml.safe_load(in_namespace.kubeconfig.read_text())
    extra = {"team.example/Names": ["red", "blue"]}
    config["users"][0]["user"] |= {
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["testers", "others"],
        "as-user-extra": extra,
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    for right in ("list gpudaskclusters.gpudask.dev", "create pods --subresource=portforward"):
        question = ("auth", "can-i", *right.split(), "--as=jane", "--as-group=testers")
        eventually(lambda: in_namespace.attempt(*question).stdout.strip() == "yes", right)  # noqa: B023 - at once
    return in_namespace


@pytest.mark.api
async def test_the_rights_of_whom_one_acts_as_count(as_jane: Kubectl) -> None:
    api = await Server.connect(as_jane.namespace)

    assert await api.clusters() == []
    with pytest.raises(KubeClusterError, match='User "jane" cannot delete') as raised:
        await api.delete("demo")
    assert raised.value.status == 403
    review = {"apiVersion": REVIEWS, "kind": "SelfSubjectReview"}
    answer = await api.call("create", "selfsubjectreviews", version=REVIEWS, namespace="", body=review)
    seen = answer["status"]["userInfo"]
    assert (seen["username"], seen["uid"]) == ("jane", "7")
    assert {"testers", "others"} <= set(seen["groups"])
    assert seen["extra"] == {"team.example/names": ["red", "blue"]}, "a header's name is written small"


@pytest.mark.api
async def test_they_count_for_forwarded_ports_too(as_jane: Kubectl) -> None:
    async def status() -> int:
        with pytest.raises(KubeClusterError) as raised:
            async with open_port(await Server.connect(as_jane.namespace), "no-such-pod", 8786):
                pass
        return raised.value.status

    assert await status() == 404
    as_jane("delete", "rolebinding", "forwarder")
    question = ("auth", "can-i", "create", "pods", "--subresource=portforward", "--as=jane")
    eventually(lambda: as_jane.attempt(*question).stdout.strip() == "no", "the right is gone")
    assert await status() == 403


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"as-groups": ["a"]}, "its user has as-groups, but no `as`. Name the user"),
        ({"as": ["jane"]}, r"its user's as is \['jane'\]. Write a user's name there"),
        ({"as": "jane", "as-uid": 7}, "its user's as-uid is 7. Write a user's uid there"),
        ({"as": "jane", "as-groups": "a"}, "its user's as-groups is 'a'. Write a list of groups there"),
        (
            {"as": "jane", "as-user-extra": {"a": "b"}},
            "its user.s as-user-extra is .*. Write a list of words for each",
        ),
    ],
)
def test_what_cannot_be_meant_names_the_field(user: dict[str, Any], said: str) -> None:
    with pytest.raises(KubeClusterError, match=rf"context 'lab' of the kubeconfig cannot be used: {said}"):
        impersonation(Choice("lab", "default", {}, user))


def test_a_name_need_not_be_ascii(server: fake.FakeServer) -> None:
    path = Path(os.environ["KUBECONFIG"])
    config = yaml.safe_load(path.read_text())
    config["users"][0]["user"] |= {"as": "jörg", "as-groups": ["prüfer"]}
    path.write_text(yaml.safe_dump(config))

    async def named() -> str:
        return str((await (await Server.connect("lab")).cluster("demo"))["metadata"]["name"])

    assert asyncio.run(named()) == "demo"


def test_nobody_is_acted_as_where_nobody_is_named() -> None:
    assert impersonation(Choice("lab", "default", {}, {"token": "t", "as": ""})) == ()
