"""What people are used to from kubectl, on a real API server: selectors, templates, names, dry runs."""

from __future__ import annotations

import json

import pytest
import yaml

from gpudask.cli.output import Exit
from tests.cli.invoke import invoke
from tests.cli.test_on_api_server import Shell, demo, shell  # noqa: F401 - fixtures

pytestmark = pytest.mark.api


@pytest.fixture
def labelled(demo: Shell) -> Shell:  # noqa: F811 - a fixture
    """`demo`, which is of team vision, and `other`, which is not."""
    demo.kubectl("label", "gdc", "demo", "team=vision")
    demo.ok("create", "other", "--image", "me/dask:1")
    return demo


def test_a_selector_finds_what_is_listed_suspended_and_deleted(labelled: Shell):
    assert labelled.ok("get", "-l", "team=vision", "-o", "name") == "gpudaskcluster.gpudask.dev/demo\n"
    assert labelled.ok("get", "-l", "team!=vision", "--no-headers").split()[0] == "other"
    shot = json.loads(labelled.ok("top", "-l", "team=vision", "-o", "json"))
    assert [cluster["name"] for cluster in shot["clusters"]] == ["demo"]
    assert shot["version"]

    assert labelled.ok("suspend", "-l", "team=vision") == "gpudaskcluster.gpudask.dev/demo suspended\n"
    assert labelled.ok("delete", "-l", "team=vision", "--wait") == "gpudaskcluster.gpudask.dev/demo deleted\n"
    assert labelled.ok("get", "-o", "name") == "gpudaskcluster.gpudask.dev/other\n"

    nothing = labelled("delete", "-l", "team=vision")
    assert (nothing.exit_code, nothing.stdout) == (Exit.OK, "")
    assert nothing.stderr == "nothing was deleted: there is no such cluster\n"


def test_a_selector_that_is_none_is_refused_in_the_servers_words(demo: Shell):  # noqa: F811
    result = demo("get", "-l", "=,=")

    assert result.exit_code == Exit.FAILED
    assert "cannot list gpudaskclusters: found '='" in result.stderr


@pytest.mark.parametrize("command", ["get", "delete", "suspend", "top"])
def test_an_empty_selector_is_not_every_cluster(labelled: Shell, command: str):
    result = labelled(command, "-l", "")

    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
    assert "it is empty, which is every cluster" in result.stderr
    assert len(labelled.ok("get", "-o", "name").split()) == 2


@pytest.mark.parametrize("command", ["delete", "suspend"])
def test_names_and_a_selector_exclude_each_other_and_one_is_needed(demo: Shell, command: str):  # noqa: F811
    for words in (["demo", "-l", "a=b"], []):
        result = demo(command, *words)
        assert (result.exit_code, result.stdout) == (Exit.USAGE, ""), words
        assert "name the clusters, or find them with -l" in result.stderr


def test_heads_can_be_left_out(demo: Shell):  # noqa: F811
    demo.report({"phase": "Running", "pools": [{"name": "cpu"}]})
    (row,) = demo.ok("get", "--no-headers").splitlines()

    assert row.split()[:2] == ["demo", "Running"]
    assert "POOL" not in demo.ok("get", "demo", "--no-headers")


def test_a_template_prints_fields(demo: Shell):  # noqa: F811
    demo.report({"phase": "Running"})

    assert demo.ok("get", "demo", "-o", "jsonpath={.status.phase}") == "Running"
    assert demo.ok("get", "-o", "jsonpath={.items[*].metadata.name}") == "demo"
    assert (
        demo.ok("get", "demo", "-o", "jsonpath={.spec.pools[*].name}")
        == demo.kubectl("get", "gdc", "demo", "-o", "jsonpath={.spec.pools[*].name}").stdout
    )
    assert demo.ok("scale", "demo", "gpu=2", "-o", "jsonpath={.spec.overrides[0].replicas}") == "2"


def test_what_is_not_there_may_be_ignored(demo: Shell):  # noqa: F811
    for command in (["get", "dmeo"], ["get", "dmeo", "-o", "json"], ["delete", "dmeo"]):
        assert demo(*command).exit_code == Exit.NOT_FOUND
        ignored = demo(*command, "--ignore-not-found")
        assert ignored.exit_code == Exit.OK, ignored.stderr
        assert "dmeo" not in ignored.stdout
    assert demo.ok("delete", "dmeo", "demo", "--ignore-not-found") == "gpudaskcluster.gpudask.dev/demo deleted\n"


@pytest.mark.parametrize("kind", ["gdc", "GpuDaskCluster", "gpudaskclusters.gpudask.dev", "gpudaskcluster.gpudask.dev"])
def test_a_name_may_be_what_o_name_prints(demo: Shell, kind: str):  # noqa: F811
    assert demo.ok("get", f"{kind}/demo", "-o", "name") == "gpudaskcluster.gpudask.dev/demo\n"
    assert demo.ok("scale", f"{kind}/demo", "gpu=1").startswith("gpudaskcluster.gpudask.dev/demo scaled")
    assert demo.ok("delete", f"{kind}/demo") == "gpudaskcluster.gpudask.dev/demo deleted\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "the name is empty: is a variable of the script not set?"),
        ("gdc/", "the name is empty"),
        ("../pods", "is no cluster's name"),
        ("demo?watch=1", "is no cluster's name"),
        ("pod/demo", "is no cluster's name"),
        ("Demo", "is no cluster's name"),
    ],
)
@pytest.mark.parametrize(
    "words",
    [
        ["get"],
        ["delete"],
        ["suspend"],
        ["resume"],
        ["wait"],
        ["logs"],
        ["top"],
        ["connect"],
        ["dashboard"],
        ["scale", "gpu=1"],
    ],
    ids=lambda words: words[0],
)
def test_what_is_no_name_is_refused_before_it_gets_into_a_url(words: list[str], name: str, said: str):
    command, *rest = words
    result = invoke(command, name, *rest)

    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [["get"], ["create", "demo", "--image", "x"], ["doctor"]])
def test_what_is_no_namespace_is_refused(command: list[str]):
    result = invoke(*command, "-n", "../kube-system")

    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
    assert "'../kube-system' is no namespace" in result.stderr


@pytest.mark.parametrize("flag", ["--dry-run", "--dry-run=client"])
def test_a_dry_run_has_the_namespace_and_asks_nobody(flag: str):
    result = invoke("create", "demo", "--image", "x", "-n", "team", flag, "--kubeconfig", "/nowhere")

    assert result.exit_code == 0, result.stderr
    assert yaml.safe_load(result.stdout)["metadata"] == {"name": "demo", "namespace": "team"}


def test_a_dry_run_of_the_server_is_its_answer_and_creates_nothing(shell: Shell):  # noqa: F811
    made = yaml.safe_load(shell.ok("create", "one", "--image", "me/dask:1", "--dry-run=server"))

    assert made["metadata"]["uid"]
    assert made["metadata"]["namespace"] == shell.kubectl.namespace
    assert shell.ok("get", "-o", "name") == ""
    assert shell.ok("create", "one", "--image", "me/dask:1", "--dry-run=none").endswith("/one created\n")
    assert "exists already" in shell("create", "one", "--image", "me/dask:1", "--dry-run=server").stderr


def test_a_dry_run_of_another_word_is_refused():
    result = invoke("create", "demo", "--image", "x", "--dry-run=yes")

    assert result.exit_code == Exit.USAGE
    assert "'yes' is not one of 'client', 'server', 'none'" in result.stderr


def test_a_watch_with_a_selector_is_of_what_it_finds(labelled: Shell, monkeypatch: pytest.MonkeyPatch):
    class EnoughError(Exception):
        pass

    seen: list[str] = []

    def noted(columns: list[str], cells: list[str]) -> str:
        seen.append(cells[0])
        if "demo" in seen:
            raise EnoughError
        return ""

    monkeypatch.setattr("gpudask.cli.cluster_tables.line", noted)
    with pytest.raises(EnoughError):
        labelled("get", "--watch", "--no-headers", "-l", "team=vision")
    assert seen == ["demo"]
