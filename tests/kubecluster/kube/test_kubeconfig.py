"""kubeconfig files put together: kubectl is the judge where it is at hand."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from gpudask import KubeClusterError
from gpudask.cli.output import Exit
from gpudask.kubecluster.kube import config as kubeconfig
from tests.cli.invoke import invoke
from tests.kubectl import Kubectl


def write(path: Path, current: str | None, contexts: dict[str, str | None], server: str = "https://one") -> Path:
    """A file with these contexts and their namespaces; the certificate lies beside it."""
    entries = [
        {"name": name, "context": {"cluster": "k", "user": "u"} | ({"namespace": space} if space else {})}
        for name, space in contexts.items()
    ]
    body = {"apiVersion": "v1", "kind": "Config", "contexts": entries, "users": [{"name": "u", "user": {"token": "t"}}]}
    body["clusters"] = [{"name": "k", "cluster": {"server": server, "certificate-authority": "ca.crt"}}]
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(body | ({"current-context": current} if current else {})))
    return path


def test_the_first_file_wins_and_the_first_current_context(tmp_path: Path):
    first = write(tmp_path / "a" / "config", None, {"x": "in-a"}, "https://first")
    second = write(tmp_path / "b" / "config", "two", {"x": "in-b", "two": None}, "https://second")
    config = kubeconfig.load(None, {"KUBECONFIG": f"{first}:/missing:{second}"})

    assert config is not None
    current, other = kubeconfig.choose(config, None), kubeconfig.choose(config, "x")
    assert (current.context, current.namespace) == ("two", "default")
    assert (other.context, other.namespace) == ("x", "in-a")
    assert other.cluster["server"] == "https://first"
    assert config["clusters"][0]["cluster"]["server"] == "https://first"
    assert config["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "a" / "ca.crt")


def test_kubectl_sees_the_same(tmp_path: Path, kubectl_local: Kubectl):
    first = write(tmp_path / "a" / "config", None, {"x": "in-a"}, "https://first")
    second = write(tmp_path / "b" / "config", "two", {"x": "in-b", "two": "z"}, "https://second")
    environment = {"KUBECONFIG": f"{first}:{second}"}
    command = [kubectl_local.path, "config", "view", "--raw"]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    theirs, ours = yaml.safe_load(done.stdout), kubeconfig.load(None, environment)

    assert ours is not None
    for section in ("contexts", "users"):
        assert sorted(ours[section], key=str) == sorted(theirs[section], key=str)
    assert [item["cluster"]["server"] for item in ours["clusters"]] == [
        item["cluster"]["server"] for item in theirs["clusters"]
    ]
    assert ours["current-context"] == theirs["current-context"]


def test_a_time_in_a_file_is_no_obstacle(tmp_path: Path):
    path = tmp_path / "config"
    path.write_text("{users: [{name: u, user: {expiry: 2026-12-01T18:00:00Z}}]}")

    assert kubeconfig.read(path)["users"][0]["user"] == {"expiry": "2026-12-01 18:00:00+00:00"}


def test_a_context_needs_a_kubeconfig(tmp_path: Path):
    result = invoke("get", "--context", "lab", env={"HOME": str(tmp_path), "KUBECONFIG": ""})

    assert (result.exit_code, result.stdout) == (Exit.FAILED, "")
    assert "there is no kubeconfig, so there is no context 'lab': KUBECONFIG is not set" in result.stderr


def test_a_credential_plugin_beside_the_file_is_found(tmp_path: Path):
    path = tmp_path / "config"
    path.write_text("{users: [{name: u, user: {exec: {command: ./login}}}, {name: v, user: {exec: {command: aws}}}]}")
    users = kubeconfig.read(path)["users"]

    assert [user["user"]["exec"]["command"] for user in users] == [str(tmp_path / "login"), "aws"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("[]", "it holds no mapping"), ("{", "cannot read kubeconfig"), (None, "cannot read kubeconfig")],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, text: str | None, said: str):
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)

    with pytest.raises(KubeClusterError, match=said):
        kubeconfig.load(str(path), {})


def test_an_unknown_context_is_answered_with_those_there_are(tmp_path: Path):
    config = kubeconfig.load(str(write(tmp_path / "config", "x", {"x": None, "two": None})), {})

    assert config is not None
    with pytest.raises(
        KubeClusterError, match=r"no context 'z' in the kubeconfig: it has: two, x. Name one: --context or context="
    ):
        kubeconfig.choose(config, "z")


def test_a_missing_file_in_kubeconfig_is_no_silence():
    with pytest.raises(KubeClusterError, match="KUBECONFIG=/missing: no such file"):
        kubeconfig.load(None, {"KUBECONFIG": "/missing"})


def test_several_files_may_be_given_at_once_and_each_must_be_there(tmp_path: Path):
    first = write(tmp_path / "a" / "config", None, {"x": None})
    second = write(tmp_path / "b" / "config", "two", {"two": None})
    config = kubeconfig.load(f"{first}:{second}", {})

    assert config is not None
    assert kubeconfig.choose(config, None).context == "two"
    with pytest.raises(KubeClusterError, match="cannot read kubeconfig /missing"):
        kubeconfig.load(f"{first}:/missing", {})


def test_a_context_that_names_no_cluster_there_is_names_those_there_are(tmp_path: Path):
    path = write(tmp_path / "config", "x", {"x": None})
    path.write_text(path.read_text().replace("cluster: k", "cluster: gone"))
    config = kubeconfig.load(str(path), {})

    assert config is not None
    with pytest.raises(KubeClusterError, match=r"context 'x' names the cluster 'gone'.*its clusters are: k\. Correct"):
        kubeconfig.choose(config, None)
