"""A connection stays with the server, the user and the files that it began with, whatever the kubeconfig says later."""

import base64
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudask.kubecluster.kube.config import Access, Choice
from gpudask.kubecluster.kube.credentials import Login
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.timing import Timing
from tests.kubecluster import fake_server as fake
from tests.kubecluster.kube.test_tls import Authority


@pytest.fixture
def other() -> Iterator[fake.FakeServer]:
    """Another API server, with a cluster of the same name."""
    with fake.FakeServer() as server:
        server.clusters["demo"] = fake.cluster("demo", "cpu")
        yield server


def both(server: fake.FakeServer, other: fake.FakeServer, current: str) -> dict[str, Any]:
    """A kubeconfig with the contexts `lab` and `other`."""
    config, theirs = server.kubeconfig(), other.kubeconfig()
    config["current-context"] = current
    config["clusters"].append({"name": "other", "cluster": theirs["clusters"][0]["cluster"]})
    config["users"].append({"name": "them", "user": {"token": "theirs"}})
    config["contexts"].append({"name": "other", "context": {"cluster": "other", "user": "them", "namespace": "lab"}})
    return config


async def test_a_session_stays_with_its_server_when_the_current_context_changes(
    server: fake.FakeServer, other: fake.FakeServer, tmp_path: Path
):
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(both(server, other, "lab")))
    server.token = "none"
    api = await Server.connect(None)

    config = both(server, other, "other")
    config["users"][0]["user"]["token"] = "second"
    path.write_text(yaml.safe_dump(config))
    server.token = "second"

    assert await api.delete("demo")
    assert (list(server.clusters), list(other.clusters)) == ([], ["demo"])
    assert other.requests == []


@pytest.mark.parametrize("moved", ["server", "user"])
async def test_a_context_that_leads_elsewhere_gives_no_credentials(
    server: fake.FakeServer, other: fake.FakeServer, tmp_path: Path, moved: str
):
    """Neither is the other server asked, nor this one with what is the other's."""
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(both(server, other, "lab")))
    first = Login(Access().choice(), Timing())
    before = await first.read()

    config = both(server, other, "lab")
    config["contexts"][0]["context"] |= {"cluster": "other"} if moved == "server" else {"user": "them"}
    config["users"][0]["user"]["token"] = "second"
    path.write_text(yaml.safe_dump(config))
    after = await first.read()

    assert (after.server, after.authorization) == (before.server, before.authorization)


@pytest.mark.parametrize("content", [None, "{", "[]", "contexts: [{name: lab}]"])
async def test_a_kubeconfig_that_is_written_just_now_ends_nothing(
    server: fake.FakeServer, tmp_path: Path, content: str | None
):
    login = Login(Access().choice(), Timing())
    before = await login.read()
    if content is None:
        (tmp_path / "kubeconfig").unlink()
    else:
        (tmp_path / "kubeconfig").write_text(content)

    assert (await login.read()).authorization == before.authorization


async def test_a_program_may_go_to_another_folder(
    server: fake.FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The kubeconfig, and the token's file beside it, are named by relative paths."""
    folder = tmp_path / "one"
    folder.mkdir()
    config = server.kubeconfig()
    config["users"][0]["user"] = {"tokenFile": "token"}
    (folder / "config").write_text(yaml.safe_dump(config))
    (folder / "token").write_text("first")
    server.token = "first"
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KUBECONFIG", "config")
    api = await Server.connect(None)

    monkeypatch.chdir(tmp_path)
    (folder / "token").write_text("second")
    server.token = "second"

    assert len(await api.clusters()) == 1
    assert len(await (await Server.connect_as(api.kept, None)).clusters()) == 1


async def test_a_kubeconfig_of_a_relative_path_is_read_again_from_another_folder(
    server: fake.FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "kubeconfig")
    login = Login(Access().choice(), Timing())
    await login.read()
    config = server.kubeconfig()
    config["users"][0]["user"]["token"] = "second"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))

    monkeypatch.chdir("/")

    assert (await login.read()).authorization == "Bearer second"


async def test_another_process_connects_as_the_same(server: fake.FakeServer, other: fake.FakeServer, tmp_path: Path):
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(both(server, other, "lab")))
    kept = (await Server.connect(None)).kept
    assert kept is not None
    passed = json.dumps(dataclasses.asdict(kept))
    path.write_text(yaml.safe_dump(both(server, other, "other")))

    again = Choice(**json.loads(passed))

    assert again.renewed().cluster == kept.cluster
    assert (await Server.connect_as(again, "lab")).session.address == f"http://127.0.0.1:{server.port}"


async def test_as_whom_one_acts_stays(server: fake.FakeServer, tmp_path: Path):
    path, config = tmp_path / "kubeconfig", server.kubeconfig()
    config["users"][0]["user"] = {"token": "first", "as": "jane"}
    path.write_text(yaml.safe_dump(config))
    login = Login(Access().choice(), Timing())
    before = await login.read()

    config["users"][0]["user"] = {"token": "second", "as": "root"}
    path.write_text(yaml.safe_dump(config))
    after = await login.read()

    assert after.authorization == "Bearer second"
    assert after.headers == before.headers == (("Impersonate-User", "jane"),)


async def test_the_certificate_authority_is_kept(server: fake.FakeServer, tmp_path: Path):
    path, config = tmp_path / "kubeconfig", server.kubeconfig()
    config["clusters"][0]["cluster"] |= {"server": "https://one.example", "certificate-authority": "ca.crt"}
    path.write_text(yaml.safe_dump(config))
    authority = Authority().pem
    (tmp_path / "ca.crt").write_bytes(authority)
    login = Login(Access().choice(), Timing())
    (tmp_path / "ca.crt").unlink()

    assert len((await login.read()).tls.get_ca_certs()) == 1
    assert login.choice is not None
    assert login.choice.cluster["certificate-authority-data"] == base64.b64encode(authority).decode()
