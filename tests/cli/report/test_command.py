"""`gpudask report` as people call it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudask.cli.output import Exit
from tests.cli.cost.builders import a_ledger, a_record
from tests.cli.invoke import invoke
from tests.cli.report.builders import a_days_cluster, a_days_record
from tests.kubecluster import fake_server
from tests.kubecluster.conftest import server  # noqa: F401 - a fixture


@pytest.fixture
def lab(server: fake_server.FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fake_server.FakeServer:  # noqa: F811
    """Cluster demo, which is there and has a record, in a folder of its own."""
    server.clusters["demo"] = a_days_cluster()
    server.records = [a_days_record(ended=False)]
    monkeypatch.chdir(tmp_path)
    return server


def test_a_file_of_the_clusters_name_is_written(lab: fake_server.FakeServer):
    result = invoke("report", "demo")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "wrote demo.html\n")
    text = Path("demo.html").read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert 'id="now"' in text
    assert 'id="sizes"' in text


def test_a_cluster_that_ended_is_reported_by_its_record(lab: fake_server.FakeServer):
    lab.clusters.clear()
    lab.records = [a_days_record()]
    text = invoke("report", "demo", "-o", "-").stdout

    assert "ended 1 Dec 2026, 12:00:00 UTC" in text
    assert 'id="now"' not in text


def two_of_a_name(lab: fake_server.FakeServer) -> None:
    lab.clusters.clear()
    lab.records = [
        a_record(a_ledger(working=2), name="twice", created=-20, ended=-10, cluster={"uid": "second"}),
        a_record(a_ledger(working=1), name="twice", created=-40, ended=-30, cluster={"uid": "first"}),
    ]
    for record, name in zip(lab.records, ("twice-2222", "twice-1111"), strict=True):
        record["metadata"]["name"] = name


def test_of_several_that_ended_the_last_is_meant_and_any_by_its_records_name(lab: fake_server.FakeServer):
    two_of_a_name(lab)

    assert "100% of 2.00 GPU-hours" in invoke("report", "twice", "-o", "-").stdout
    assert "100% of 1.00 GPU-hours" in invoke("report", "twice-1111", "-o", "-").stdout


def test_one_that_is_there_is_not_taken_for_one_that_had_its_name(lab: fake_server.FakeServer):
    lab.records = [a_days_record() | {"record": a_days_record()["record"] | {"cluster": {"name": "demo", "uid": "x"}}}]
    text = invoke("report", "demo", "-o", "-").stdout

    assert "has no record" in text
    assert 'id="ends"' not in text


def test_with_prices_it_has_money(lab: fake_server.FakeServer):
    Path("prices.yaml").write_text("{currency: CHF, default: 1}")

    assert "Cost of the GPUs" in invoke("report", "demo", "-o", "-", "--prices", "prices.yaml").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["odl"], Exit.NOT_FOUND, "no cluster 'odl' in namespace 'lab', and no record of one"),
        (["demo", "-o", "no/such/place.html"], Exit.FAILED, "cannot write no/such/place.html: No such file"),
        (["demo", "--prices", "no.yaml"], Exit.USAGE, "no such file: no.yaml"),
    ],
)
def test_what_cannot_be_done_is_told(lab: fake_server.FakeServer, arguments: list[str], code: Exit, said: str):
    result = invoke("report", *arguments)

    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
