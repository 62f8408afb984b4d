"""What TAB offers, and that whatever goes wrong it is over soon and says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpudask.cli import completion
from gpudask.cli.main import app
from tests.kubecluster import fake_server
from tests.kubecluster.conftest import server  # noqa: F401 - a fixture

PATIENT = {completion.TIMEOUT_VARIABLE: "60"}


def complete(line: str, env: dict[str, str]) -> tuple[list[str], str]:
    """What is offered after `line`, and what was said; a `TimeoutExpired` where it hangs."""
    words = {"_GPUDASK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()))}
    command = [sys.executable, "-m", "gpudask.cli"]
    done = subprocess.run(
        command, env=os.environ | env | words, capture_output=True, text=True, check=False, timeout=90
    )
    assert done.returncode == 0, done
    return done.stdout.split(), done.stderr


@pytest.mark.program
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gpudask get ", ["demo", "other"]),
        ("gpudask delete demo ", ["other"]),
        ("gpudask logs demo ", ["cpu", "gpu"]),
        ("gpudask scale demo ", ["cpu=", "gpu="]),
        ("gpudask wait demo --for ", ["ready", "suspended", "created", "deleted", "workers=cpu:", "workers=gpu:"]),
        ("gpudask get --context ", ["lab"]),
    ],
)
def test_what_is_there_is_offered(
    server: fake_server.FakeServer,  # noqa: F811
    line: str,
    offered: list[str],
):
    server.clusters["other"] = fake_server.cluster("other", "cpu")

    assert complete(line, PATIENT) == (offered, "")


def config(folder: Path, user: dict[str, object], where: str) -> dict[str, str]:
    """The environment in which a kubeconfig leads to `where` as `user`."""
    path = folder / "config"
    body = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": where}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(body))
    return {"KUBECONFIG": str(path)}


@pytest.mark.parametrize("content", ["[", "a: b", "contexts: 3", "clusters: [{}]", "\x00"])
def test_a_broken_kubeconfig_is_no_word_and_no_traceback(
    tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "config").write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    for name in ("_GPUDASK_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
        monkeypatch.setenv(name, "")  # what is set below is taken back

    for words in (["get", "--context", ""], ["get", ""]):
        assert completion.candidates(app, words, "_GPUDASK_COMPLETE") == []
    assert capsys.readouterr().err == ""


@pytest.mark.program
def test_with_a_broken_kubeconfig_the_whole_program_says_nothing(tmp_path: Path):
    (tmp_path / "config").write_text("[")

    assert complete("gpudask get ", {"KUBECONFIG": str(tmp_path / "config")}) == ([], "")


@pytest.mark.program
def test_a_program_for_credentials_that_hangs_is_not_waited_for(tmp_path: Path):
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sleep", "args": ["3600"]}
    offered, said = complete("gpudask get ", config(tmp_path, {"exec": plugin}, "http://127.0.0.1:9"))

    assert (offered, said) == ([], "")


@pytest.mark.program
@pytest.mark.parametrize(
    ("shell", "asks", "offered"),
    [
        ("zsh", {}, """_arguments '*: :((demo))'"""),
        ("fish", {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "demo"),
    ],
)
def test_other_shells_ask_in_their_own_words(
    server: fake_server.FakeServer,  # noqa: F811
    shell: str,
    asks: dict[str, str],
    offered: str,
):
    assert server.clusters
    words = {"_GPUDASK_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "gpudask get ", **asks}
    done = subprocess.run(
        [sys.executable, "-m", "gpudask.cli"],
        env=os.environ | PATIENT | words,
        capture_output=True,
        text=True,
        check=True,
        timeout=90,
    )
    assert done.stdout.replace('"', "").strip() == offered


@pytest.mark.program
def test_bash_completes_what_install_completion_taught_it(
    server: fake_server.FakeServer,  # noqa: F811
    tmp_path: Path,
):
    assert server.clusters
    there = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    typed = 'COMP_WORDS=(gpudask get ""); COMP_CWORD=2; _gpudask_completion gpudask; echo "${COMPREPLY[@]}"'
    # The kubeconfig is named: the home directory, whose shell is taught, is another one.
    env = os.environ | PATIENT | {"PATH": there, "HOME": str(tmp_path)}
    subprocess.run(["bash", "-c", "gpudask --install-completion; true"], env=env, check=True, timeout=90)
    done = subprocess.run(
        ["bash", "--norc", "-c", f'source "$HOME/.bashrc"; {typed}'],
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=90,
    )
    assert done.stdout.split() == ["demo"]
