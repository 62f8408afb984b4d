"""Commands on a real API server, where no pod runs: what is written, read, refused, and with which exit code."""

from __future__ import annotations

from gpudask.api import Json

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from gpudask.api.resource import API_VERSION, RECORD_KIND
from gpudask.cli.output import Exit
from tests.cli.cost.builders import a_ledger, a_record
from tests.cli.invoke import invoke, over_once_said
from tests.cli.report.builders import a_days_record
from tests.eventually import eventually
from tests.kubectl import Kubectl

pytestmark = pytest.mark.api
ROOT = Path(__file__).parents[2]
MIXED = ROOT / "examples" / "mixed.yaml"
STOCK = Path(__file__).parent / "stock"


class Shell:
    """The command line with a namespace of its own."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl

    def __call__(self, *arguments: str, stdin: str | None = None) -> Result:
        flags = ["--kubeconfig", str(self.kubectl.kubeconfig), "-n", self.kubectl.namespace]
        return invoke(*arguments, *flags, stdin=stdin)

    def ok(self, *arguments: str, stdin: str | None = None) -> str:
        result = self(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def cluster(self, name: str = "demo") -> Json:
        body: Json = json.loads(self.kubectl("get", "gdc", name, "-o", "json").stdout)
        return body

    def report(self, status: Json, name: str = "demo") -> None:
        """Write a status as the operator would."""
        patch = json.dumps({"status": status})
        self.kubectl("patch", "gdc", name, "--subresource=status", "--type=merge", "-p", patch)


@pytest.fixture
def shell(in_namespace: Kubectl) -> Shell:
    return Shell(in_namespace)


@pytest.fixture
def demo(shell: Shell) -> Shell:
    shell.kubectl("apply", "--server-side", "-f", str(MIXED))
    return shell


def test_a_cluster_is_created_from_flags_and_from_a_file(shell: Shell):
    created = shell.ok("create", "one", "--image", "me/dask:1", "--workers", "2", "--gpus", "0-8")
    shell.ok("create", "-f", str(MIXED))

    assert created == "gpudaskcluster.gpudask.dev/one created\n"
    assert [pool["name"] for pool in shell.cluster("one")["spec"]["pools"]] == ["cpu", "gpu"]
    assert shell.ok("get", "-o", "name").split() == [
        "gpudaskcluster.gpudask.dev/demo",
        "gpudaskcluster.gpudask.dev/one",
    ]


def test_what_exists_is_not_overwritten(demo: Shell):
    result = demo("create", "demo", "--image", "other:1")

    assert (result.exit_code, result.stdout) == (Exit.FAILED, "")
    assert "exists already" in result.stderr


def test_of_several_in_a_file_one_that_is_refused_holds_back_no_other(demo: Shell):
    text = MIXED.read_text()
    result = demo("create", "-f", "-", stdin=f"{text}---\n{text.replace('name: demo', 'name: second', 1)}")

    assert (result.exit_code, result.stdout) == (Exit.FAILED, "gpudaskcluster.gpudask.dev/second created\n")
    assert "error: cannot create cluster 'demo': it exists already" in result.stderr


def test_of_several_names_an_unknown_one_leaves_all_as_they_are(demo: Shell):
    for command in ("suspend", "delete"):
        result = demo(command, "demo", "dmeo")
        assert (result.exit_code, result.stdout) == (Exit.NOT_FOUND, ""), command
        assert not demo.cluster()["spec"].get("suspend"), command


def test_a_misspelt_field_is_refused_in_the_servers_words(shell: Shell):
    text = MIXED.read_text().replace("autoscale:", "autoscail:")
    result = shell("create", "-f", "-", stdin=text)

    assert result.exit_code == Exit.FAILED
    assert 'unknown field "spec.pools[0].autoscail"' in result.stderr


@pytest.mark.parametrize("name", [path.stem for path in STOCK.glob("*.yaml")])
def test_what_convert_makes_is_accepted(shell: Shell, name: str):
    made = yaml.safe_load(invoke("convert", str(STOCK / f"{name}.yaml")).stdout)
    made["metadata"].pop("namespace", None)

    shell.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=yaml.safe_dump(made))


def test_what_render_prints_are_objects_that_a_server_takes(shell: Shell):
    namespace = shell.kubectl.namespace
    shell.kubectl("create", "serviceaccount", "default")  # no controller makes it here
    rendered = invoke("render", str(MIXED), "--one-of-each", "-n", namespace).stdout

    shell.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=rendered)


def test_get_lists_as_people_and_programs_want_it(demo: Shell):
    demo.report({"phase": "Running", "summary": {"cpu": "1/1", "gpu": "0/0"}, "conditions": [], "pools": []})

    header, row = demo.ok("get").splitlines()
    assert header.split() == ["NAME", "PHASE", "CPU", "GPU", "AGE"]
    assert row.split()[:4] == ["demo", "Running", "1/1", "0/0"]
    assert "REASON" in demo.ok("get", "-o", "wide")
    assert json.loads(demo.ok("get", "demo", "-o", "json"))["metadata"]["name"] == "demo"
    assert [item["kind"] for item in yaml.safe_load(demo.ok("get", "-o", "yaml"))["items"]] == ["GpuDaskCluster"]
    assert demo.kubectl.namespace in demo.ok("get", "-A", "-o", "json")
    assert "cpu" in demo.ok("get", "demo")


def test_an_empty_namespace_is_no_error_and_no_output(shell: Shell):
    result = shell("get")

    assert (result.exit_code, result.stdout) == (0, "")
    assert f"no clusters found in namespace {shell.kubectl.namespace};" in result.stderr


def test_an_unknown_cluster_has_an_exit_code_of_its_own(demo: Shell):
    for command in (
        ["get", "dmeo"],
        ["scale", "dmeo", "gpu=1"],
        ["delete", "dmeo"],
        ["logs", "dmeo"],
        ["wait", "dmeo"],
    ):
        result = demo(*command)
        assert (result.exit_code, result.stdout) == (Exit.NOT_FOUND, ""), command
        assert "there are: demo. Use one of these names, or another namespace, with -n" in result.stderr


def overrides(shell: Shell) -> Json:
    return {entry["pool"]: entry for entry in shell.cluster()["spec"].get("overrides", [])}


def test_sizes_are_set_for_a_while_changed_and_given_back(demo: Shell):
    assert demo.ok("scale", "demo", "gpu=4", "cpu=2", "--for", "2h").startswith(
        "gpudaskcluster.gpudask.dev/demo scaled: gpu 4 pods until "
    )
    assert overrides(demo)["gpu"]["replicas"] == 4
    assert overrides(demo)["gpu"]["until"].endswith("Z")

    demo.ok("scale", "demo", "gpu=3")
    assert "until" not in overrides(demo)["gpu"]
    assert overrides(demo)["cpu"]["replicas"] == 2

    demo.ok("scale", "demo", "gpu=auto")
    assert set(overrides(demo)) == {"cpu"}
    demo.kubectl("apply", "--server-side", "-f", str(MIXED))
    assert set(overrides(demo)) == {"cpu"}, "the manifest's owner does not fight it"


def test_a_size_beyond_the_schema_and_an_unknown_pool_are_refused(demo: Shell):
    assert "less than or equal to 5000" in demo("scale", "demo", "gpu=9999").stderr
    unknown = demo("scale", "demo", "x=1")
    assert (unknown.exit_code, "its pools are cpu, gpu" in unknown.stderr) == (Exit.NOT_FOUND, True)


def test_replicas_are_of_the_only_pool(shell: Shell):
    shell.ok("create", "one", "--image", "me/dask:1")
    assert shell.ok("scale", "one", "--replicas", "3").endswith("scaled: cpu 3 pods\n")
    shell.kubectl("apply", "--server-side", "-f", str(MIXED))

    several = shell("scale", "demo", "--replicas", "3")
    assert (several.exit_code, "its pools are cpu, gpu: write for example cpu=2" in several.stderr) == (2, True)


def test_suspend_and_resume_change_one_field(demo: Shell):
    before = demo.cluster()["spec"]
    assert demo.ok("suspend", "demo") == "gpudaskcluster.gpudask.dev/demo suspended\n"
    assert demo.cluster()["spec"] == before | {"suspend": True}
    assert demo.ok("suspend", "demo") == "gpudaskcluster.gpudask.dev/demo suspended already\n"

    demo.ok("scale", "demo", "gpu=1")
    assert demo.cluster()["spec"]["suspend"] is True, "a size set meanwhile resumes nothing"
    demo.ok("resume", "demo")
    assert demo.cluster()["spec"]["suspend"] is False


def test_delete_says_what_is_lost_and_deletes(demo: Shell):
    demo.report({"pools": [{"name": "cpu", "pods": 2, "demand": {"running": 3}}], "scheduler": {"tasks": 7}})
    result = demo("delete", "demo")

    assert result.stdout == "gpudaskcluster.gpudask.dev/demo deleted\n"
    assert "2 worker pods; 3 tasks run" in result.stderr
    assert demo.ok("get", "-o", "name") == ""
    assert demo.ok("wait", "demo", "--for", "deleted", "--timeout", "200s")


def ready(body: Json) -> Json:
    condition = {"type": "Ready", "status": "True", "reason": "AllReady"}
    return {"observedGeneration": body["metadata"]["generation"], "conditions": [condition]}


def test_a_wait_that_is_over_returns_and_one_that_is_not_says_why(demo: Shell, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patched:
        over_once_said(patched, "the operator has reported nothing yet")
        late = demo("wait", "demo", "--timeout", "5s")
    assert late.exit_code == Exit.TIMED_OUT
    assert "the operator has reported nothing yet" in late.stderr

    demo.report(ready(demo.cluster()))
    assert demo.ok("wait", "demo", "--timeout", "200s") == "gpudaskcluster.gpudask.dev/demo: ready\n"


def test_top_prints_once_where_there_is_no_terminal(demo: Shell):
    pool = {"name": "gpu", "ready": 1, "desired": 2, "gpusHeld": 2, "gpusBusy": 1, "sizeSetBy": "autoscale"}
    causes = [{"cause": "working", "gpus": 1, "gpuSeconds": 30.0}, {"cause": "spare", "gpus": 1, "gpuSeconds": 10.0}]
    demo.report({"pools": [pool | {"reason": "5 tasks wait", "demand": {"waiting": 5}, "causes": causes}]})
    text = demo.ok("top", "demo")

    assert "GPUs held 2, busy 1" in text
    assert ["demo", "gpu", "75%", "1", "working,", "1", "spare"] in [line.split() for line in text.splitlines()]
    assert any(line.split()[:4] == ["demo", "gpu", "1/2", "0"] for line in text.splitlines())


def test_what_gpus_cost_is_read_from_a_status(demo: Shell):
    causes = [{"cause": "working", "gpuSeconds": 5400.0}, {"cause": "starting", "gpuSeconds": 1800.0}]
    owners = [{"owner": "ada", "gpuSeconds": 3600.0}, {"owner": "", "gpuSeconds": 1800.0}]
    demo.report({"pools": [{"name": "gpu", "causes": causes, "owners": owners}], "summary": {"worked": "75%"}})

    told = json.loads(demo.ok("cost", "demo", "--by", "owner", "-o", "json"))
    assert {row["owner"]: row["gpuHours"] for row in told["rows"]} == {"ada": 1.0, "": 0.5, "(idle)": 0.5}
    assert "75%" in demo.ok("get", "-o", "wide")


def test_a_cluster_that_is_gone_is_counted_and_reported_by_its_record(shell: Shell):
    body = a_days_record("gone") | {"apiVersion": API_VERSION, "kind": RECORD_KIND}
    body["metadata"]["namespace"] = shell.kubectl.namespace
    shell.kubectl("create", "--validate=strict", "-f", "-", stdin=json.dumps(body))

    told = json.loads(shell.ok("cost", "--by", "team", "-o", "json"))
    assert [(row["team"], row["gpuHours"]) for row in told["rows"]] == [("vision", 60.75)]
    for name in ("gone", body["metadata"]["name"]):
        assert "61% of 60.75 GPU-hours worked" in shell.ok("report", name, "-o", "-")
    assert shell("report", "gnoe").exit_code == Exit.NOT_FOUND


def test_records_are_read_to_the_last_page(shell: Shell):
    bodies = [
        a_record(a_ledger("gpu", working=1), name=f"gone-{number}") | {"apiVersion": API_VERSION, "kind": RECORD_KIND}
        for number in range(60)
    ]
    for body in bodies:
        body["metadata"]["namespace"] = shell.kubectl.namespace
    shell.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies}))

    assert json.loads(shell.ok("cost", "-o", "json"))["total"]["gpuHours"] == 60.0
    listed = json.loads(shell.ok("history", "-o", "json"))["items"]
    assert len(listed) == 60
    names = [f"gpudaskrecord.gpudask.dev/{body['metadata']['name']}" for body in listed]
    assert shell.ok("history", "-o", "name").splitlines() == names


def test_top_answers_programs_once_and_in_numbers(demo: Shell):
    pool = {"name": "gpu", "ready": 1, "desired": 2, "gpusHeld": 2, "gpusBusy": 1}
    demo.report({"phase": "Running", "pools": [pool]})

    for shot in (json.loads(demo.ok("top", "demo", "-o", "json")), yaml.safe_load(demo.ok("top", "-o", "yaml"))):
        assert (shot["gpusHeld"], shot["gpusBusy"]) == (2, 1)
        assert [cluster["name"] for cluster in shot["clusters"]] == ["demo"]
        assert shot["clusters"][0]["pools"][0]["ready"] == 1


def test_a_wait_prints_what_it_waited_for(demo: Shell):
    demo.report(ready(demo.cluster()))

    assert json.loads(demo.ok("wait", "demo", "-o", "json"))["metadata"]["name"] == "demo"
    assert yaml.safe_load(demo.ok("wait", "demo", "-o", "yaml"))["kind"] == "GpuDaskCluster"
    assert demo.ok("wait", "demo", "-o", "name") == "gpudaskcluster.gpudask.dev/demo\n"


def test_without_a_scheduler_nothing_is_forwarded(demo: Shell):
    for command in ("connect", "dashboard"):
        result = demo(command, "demo")
        assert result.exit_code == Exit.FAILED
        assert "has no scheduler that is ready" in result.stderr
        assert "gpudask wait demo" in result.stderr


def test_logs_without_a_pod_say_so(demo: Shell):
    result = demo("logs", "demo", "gpu")

    assert result.exit_code == Exit.NOT_FOUND
    assert "gpu of cluster 'demo' has no pod now" in result.stderr


def test_the_doctor_of_a_bare_server_misses_the_operator_and_knows_the_definition(demo: Shell):
    result = demo("doctor", "-o", "json")
    findings = {item["check"]: item for item in json.loads(result.stdout)}

    assert result.exit_code == Exit.PROBLEM_FOUND
    assert findings["API server"]["level"] == "ok"
    assert findings["resource definition"]["level"] == "ok", findings["resource definition"]
    assert findings["operator"]["level"] == "problem"
    assert findings["your rights"]["level"] == "ok"
    assert "helm install" in demo("doctor").stdout


def test_the_doctor_asks_what_the_operators_account_may(demo: Shell):
    labels = {"app.kubernetes.io/name": "gpudask", "app.kubernetes.io/component": "operator"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"serviceAccountName": "nobody", "containers": [{"name": "operator", "image": "x"}]},
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "gpudask", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    demo.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    try:
        findings = {item["check"]: item for item in json.loads(demo("doctor", "-o", "json").stdout)}
    finally:
        demo.kubectl("delete", "deployment", "gpudask")

    assert findings["operator's rights"]["level"] == "problem"
    assert "get/list/watch/create/patch/delete pods in all namespaces" in findings["operator's rights"]["text"]


def as_somebody(shell: Shell, folder: Path, *rules: str) -> Shell:
    """The same command line in the hands of a service account with these rights: `--verb=... --resource=...`."""
    kubectl, name = shell.kubectl, f"somebody-{folder.name[-20:].strip('_').replace('_', '-')}"
    kubectl("create", "serviceaccount", name)
    for number, rule in enumerate(rules):
        kubectl("create", "role", f"{name}-{number}", *rule.split())
        account = f"--serviceaccount={kubectl.namespace}:{name}"
        kubectl("create", "rolebinding", f"{name}-{number}", f"--role={name}-{number}", account)
    config = yaml.safe_load(Path(str(kubectl.kubeconfig)).read_text())
    for user in config["users"]:
        user["user"] = {"token": kubectl("create", "token", name).stdout.strip()}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return Shell(replace(kubectl, kubeconfig=path))


def test_the_doctor_of_somebody_without_rights_says_what_is_open_and_how_to_get_them(demo: Shell, tmp_path: Path):
    somebody = as_somebody(demo, tmp_path)
    result = somebody("doctor", "-o", "json")
    findings = {item["check"]: item for item in json.loads(result.stdout)}

    assert "Traceback" not in result.stderr
    assert findings["resource definition"]["level"] == "ok", findings["resource definition"]
    assert [findings[check]["level"] for check in ("operator", "GPU nodes", "clusters")] == ["unknown"] * 3
    rights = findings["your rights"]
    assert "create gpudaskclusters.gpudask.dev (for gpudask create)" in rights["text"]
    assert f"--clusterrole=edit --serviceaccount={demo.kubectl.namespace}:somebody-" in rights["mend"]


def test_who_may_only_get_can_wait(demo: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    somebody = as_somebody(demo, tmp_path, "--verb=get --resource=gpudaskclusters.gpudask.dev")
    with monkeypatch.context() as patched:
        over_once_said(patched, "the operator has reported nothing yet")
        late = somebody("wait", "demo", "--timeout", "2s")
    assert (late.exit_code, "the operator has reported nothing yet" in late.stderr) == (Exit.TIMED_OUT, True)

    demo.report(ready(demo.cluster()))
    assert somebody.ok("wait", "demo", "-o", "name") == "gpudaskcluster.gpudask.dev/demo\n"


def test_a_refusal_is_one_line_with_the_rule_that_is_missing(demo: Shell, tmp_path: Path):
    somebody = as_somebody(demo, tmp_path, "--verb=get --resource=gpudaskclusters.gpudask.dev")
    for command in (["get"], ["scale", "demo", "gpu=1"], ["delete", "demo"], ["top"], ["logs", "demo"]):
        result = somebody(*command)
        assert (result.exit_code, result.stdout) == (Exit.FAILED, ""), command
        assert result.stderr.splitlines()[-1].startswith("error: cannot "), command
        assert "Ask for a Role in namespace" in result.stderr


def test_the_doctor_knows_our_mirror_and_the_stock_operators_kinds(demo: Shell):
    mirror = ROOT / "crds" / "mirror.yaml"
    try:
        demo.kubectl.define(mirror)
        findings = eventually_known(demo)
    finally:
        demo.kubectl("delete", "-f", str(mirror))

    assert findings["stock Dask operator"]["text"] == "it is not installed"
    assert findings["mirror"]["level"] == "ok"
    assert "our chart once installed" in findings["mirror"]["text"]


def eventually_known(shell: Shell) -> Json:
    """The findings once the server's discovery has the kinds that were just made."""

    def known() -> Json | None:
        findings = {item["check"]: item for item in json.loads(shell("doctor", "-o", "json").stdout)}
        return findings if "mirror" in findings else None

    return eventually(known, "the mirror's kinds are discovered")


def test_context_and_namespace_come_from_the_kubeconfig(demo: Shell, tmp_path: Path):
    config = yaml.safe_load(Path(str(demo.kubectl.kubeconfig)).read_text())
    [context] = [item["context"] for item in config["contexts"] if item["name"] == config["current-context"]]
    contexts = tmp_path / "contexts"
    other = [{"name": "lab", "context": context | {"namespace": demo.kubectl.namespace}}]
    contexts.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "contexts": other}))
    several = {"KUBECONFIG": f"{contexts}:{demo.kubectl.kubeconfig}"}

    assert "demo" in invoke("get", "--context", "lab", "-o", "name", env=several).stdout
    assert invoke("get", "-o", "name", env=several).stdout == ""


def test_the_shell_completes_clusters_and_pools(demo: Shell):
    flags = f"--kubeconfig {demo.kubectl.kubeconfig} -n {demo.kubectl.namespace}"
    for line, expected in ((f"gpudask get {flags} ", "demo"), (f"gpudask scale {flags} demo ", "gpu=")):
        env = {"_GPUDASK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()))}
        assert expected in invoke(env=env).stdout, line


def test_a_watch_prints_each_change_until_it_is_interrupted(demo: Shell):
    flags = ["--kubeconfig", str(demo.kubectl.kubeconfig), "-n", demo.kubectl.namespace]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # one that is ignored here is not heard there
    process = subprocess.Popen(
        [sys.executable, "-m", "gpudask.cli", "get", "--watch", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["NAME", "PHASE", "CPU", "GPU", "AGE"]
        assert process.stdout.readline().split()[0] == "demo"
        demo.report({"phase": "Running"})
        assert process.stdout.readline().split()[:2] == ["demo", "Running"]
        demo.ok("create", "other", "--image", "me/dask:1", "--workers", "1")
        assert process.stdout.readline().split()[0] == "other"
        assert demo.ok("delete", "other", "-o", "name") == "gpudaskcluster.gpudask.dev/other\n"
        assert process.stderr is not None
        assert process.stderr.readline() == "gpudaskcluster.gpudask.dev/other deleted\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == Exit.INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, before)
        process.kill()
        process.wait()


def test_a_watch_of_a_cluster_that_is_not_there_ends_at_once(demo: Shell):
    result = demo("get", "dmeo", "--watch")

    assert (result.exit_code, result.stdout) == (Exit.NOT_FOUND, "")
    assert "there are: demo" in result.stderr


def test_options_stand_before_a_command_or_behind_it(demo: Shell):
    before = invoke("--kubeconfig", str(demo.kubectl.kubeconfig), "-n", demo.kubectl.namespace, "get", "-o", "name")
    assert before.exit_code == 0, before.output
    assert before.stdout == demo.ok("get", "-o", "name") == "gpudaskcluster.gpudask.dev/demo\n"
