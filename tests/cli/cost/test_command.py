"""`gpudask cost` as people and programs call it, on a server with clusters that are there and records of others."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from datetime import UTC, datetime, timedelta

import pytest

from gpudask.cli.output import CliError, Exit
from gpudask.cli.commands.cost import read_start
from tests.cli.cost.builders import a_cluster, a_ledger, a_record, a_sample
from tests.cli.invoke import invoke
from tests.cli.report.builders import a_days_record
from tests.conftest import ROOT
from tests.docs.pages import BLOCK
from tests.kubecluster import fake_server
from tests.kubecluster.conftest import server  # noqa: F401 - a fixture


@pytest.fixture
def lab(server: fake_server.FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fake_server.FakeServer:  # noqa: F811
    """Cluster demo, which is there and has a record as well, two that ended, and a price file."""
    server.clusters["demo"] = a_cluster(
        a_ledger("gpu", {"ada": 2}, working=3, spare=1), labels={"team": "vision"}, annotations={"project": "p"}
    )
    server.records = [
        a_record(a_ledger("gpu", working=2, spare=1), name="demo", ended=None),
        a_record(
            a_ledger("gpu", {"bob": 1}, working=1, waitingIdleTimeout=1), cluster={"attribution": {"team": "nlp"}}
        ),
        a_record(
            a_ledger("gpu", starting=0.5) | {"nodeSelector": {"gpu": "h200"}}, name="older", created=-90, ended=-80
        ),
    ]
    monkeypatch.chdir(tmp_path)
    Path("prices.yaml").write_text("{currency: EUR, default: 2, rules: [{nodeSelector: {gpu: h200}, perGpuHour: 4}]}")
    return server


def table(*arguments: str) -> list[list[str]]:
    result = invoke("cost", *arguments)
    assert result.exit_code == 0, result.stderr
    return [line.split() for line in result.stdout.splitlines()]


def test_clusters_that_are_there_and_that_ended_each_once_with_their_sum(lab: fake_server.FakeServer):
    assert table() == [
        ["CLUSTER", "GPU-HOURS", "WORKED"],
        ["demo", "4.00", "75%"],
        ["old", "2.00", "50%"],
        ["older", "0.50", "0%"],
        ["TOTAL", "6.50", "62%"],
    ]


def test_with_prices_each_row_has_its_money_and_what_of_it_was_idle(lab: fake_server.FakeServer):
    assert table("--prices", "prices.yaml", "--by", "team") == [
        ["TEAM", "GPU-HOURS", "WORKED", "EUR", "EUR", "IDLE"],
        ["vision", "4.00", "75%", "8.00", "2.00"],
        ["nlp", "2.00", "50%", "4.00", "2.00"],
        ["-", "0.50", "0%", "2.00", "2.00"],
        ["TOTAL", "6.50", "62%", "14.00", "6.00"],
    ]


def test_names_choose_clusters_also_one_that_ended(lab: fake_server.FakeServer):
    assert [row[0] for row in table("old", "older")] == ["CLUSTER", "old", "older", "TOTAL"]


def test_a_name_that_nobody_knows_is_an_error(lab: fake_server.FakeServer):
    result = invoke("cost", "odl")

    assert (result.exit_code, result.stdout) == (Exit.NOT_FOUND, "")
    assert "no cluster 'odl' in namespace 'lab', and no record of one" in result.stderr


def test_in_all_namespaces_clusters_have_theirs_before_them(lab: fake_server.FakeServer):
    assert [row[:2] for row in table("-A")][:2] == [["NAMESPACE", "CLUSTER"], ["lab", "demo"]]


def test_programs_get_figures_under_stable_names(lab: fake_server.FakeServer):
    result = invoke("cost", "--by", "cluster,owner", "--prices", "prices.yaml", "-o", "json")
    told = json.loads(result.stdout)

    assert (told["by"], told["currency"], told["since"]) == (["cluster", "owner"], "EUR", None)
    assert told["rows"][0] == {
        "cluster": "demo",
        "owner": "ada",
        "gpuHours": 2.0,
        "gpuHoursWorked": 2.0,
        "gpuHoursIdle": 0.0,
        "worked": 1.0,
        "money": 4.0,
        "moneyIdle": 0.0,
    }
    assert (told["total"]["gpuHours"], told["total"]["money"]) == (6.5, 14.0)


def test_spreadsheets_get_rows_without_their_sum(lab: fake_server.FakeServer):
    rows = list(csv.DictReader(io.StringIO(invoke("cost", "--by", "team", "-o", "csv").stdout)))

    assert [(row["team"], row["gpuHours"], row["money"]) for row in rows] == [
        ("vision", "4.0", ""),
        ("nlp", "2.0", ""),
        ("", "0.5", ""),
    ]


@pytest.mark.parametrize("owner", ["=HYPERLINK(1)", "+1", "-1", "@x"])
def test_a_spreadsheet_takes_no_owner_for_a_formula(lab: fake_server.FakeServer, owner: str):
    lab.records = [a_record(a_ledger("gpu", {owner: 1}, working=1), name="old")]
    rows = list(csv.DictReader(io.StringIO(invoke("cost", "old", "--by", "owner", "-o", "csv").stdout)))

    assert [row["owner"] for row in rows] == [f"'{owner}"]


def test_since_leaves_out_what_ended_before_and_says_what_it_could_not_cut(lab: fake_server.FakeServer):
    now = datetime.now(UTC)
    began, ended = now - timedelta(hours=10), now - timedelta(hours=1)
    hours = (began.timestamp() - datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()) / 3600
    lab.clusters["demo"]["metadata"]["creationTimestamp"] = began.isoformat()
    assert lab.records is not None
    for record in lab.records[:2]:
        record["record"]["cluster"]["created"] = began.isoformat()
    lab.records[1]["record"] |= {"ended": ended.isoformat(), "samples": [a_sample(hours, 2, 1)]}
    lab.records[2]["record"] |= {"ended": began.isoformat()}
    result = invoke("cost", "--since", "4h", "-o", "json")

    assert {row["cluster"]: row["gpuHours"] for row in json.loads(result.stdout)["rows"]} == {
        "demo": 4.0,
        "old": pytest.approx(0.66, abs=0.011),
    }
    assert "demo: began before, and have no samples" in result.stderr
    assert "old: began before; estimated" in result.stderr


def test_records_are_read_page_by_page(lab: fake_server.FakeServer):
    lab.records = [a_record(a_ledger(working=1), name=f"old-{number:03}") for number in range(120)]

    assert table("--by", "namespace")[-1] == ["lab", "124.00", "99%"]
    assert sum("gpudaskrecords" in request for request in lab.requests) == 3


def test_without_the_kind_the_clusters_that_are_there_are_counted(lab: fake_server.FakeServer):
    lab.records = None

    assert [row[0] for row in table()] == ["CLUSTER", "demo"]


def test_who_may_not_read_records_is_told_and_gets_the_rest(lab: fake_server.FakeServer):
    lab.forbidden = {"GET gpudaskrecords"}
    result = invoke("cost")

    assert result.stdout.split()[3:] == ["demo", "4.00", "75%"]
    assert "records of clusters are left out" in result.stderr
    assert 'resources: ["gpudaskrecords"]' in result.stderr


def test_no_gpu_at_all_is_no_error(lab: fake_server.FakeServer):
    lab.records = []
    lab.clusters["demo"] = fake_server.cluster("demo", "cpu")
    result = invoke("cost")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "no pool has held a GPU" in result.stderr


def test_what_is_probably_misspelt_or_has_no_price_is_told(lab: fake_server.FakeServer):
    Path("prices.yaml").write_text("{currency: EUR, rules: [{nodeSelector: {gpu: h200}, perGpuHour: 4}]}")
    result = invoke("cost", "--by", "taem", "--prices", "prices.yaml")

    assert "no cluster has a label or an annotation 'taem'" in result.stderr
    assert "demo/gpu, old/gpu: no price, counted as 0" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--by", "a b"], "'a b' is no label's name"),
        (["--by", ""], "'' is no label's name"),
        (["--by", "a,b,c,d,e,f,g"], "6 at most"),
        (["--since", "soon"], "'soon' is not a duration"),
        (["--since", "3000-01-01"], "lies ahead"),
        (["--since", "7days"], "is not a duration"),
        (["--prices", "no.yaml"], "no such file: no.yaml"),
        (["demo", "-A"], "leave out -A"),
    ],
)
def test_a_mistake_is_told_before_anything_is_asked(lab: fake_server.FakeServer, arguments: list[str], said: str):
    result = invoke("cost", *arguments)

    assert (result.exit_code, result.stdout) == (Exit.USAGE, ""), result.stderr
    assert said in result.stderr
    assert lab.requests == []


NOW = datetime(2026, 12, 8, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("7d", datetime(2026, 12, 1, 12, tzinfo=UTC)),
        ("1d12h", datetime(2026, 12, 7, 0, tzinfo=UTC)),
        ("90m", datetime(2026, 12, 8, 10, 30, tzinfo=UTC)),
        ("2026-12-01", datetime(2026, 12, 1, tzinfo=UTC)),
        ("2026-12-01T06:00:00+02:00", datetime(2026, 12, 1, 4, tzinfo=UTC)),
    ],
)
def test_a_beginning_is_so_long_ago_or_a_date(text: str, at: datetime):
    assert read_start(text, NOW) == at.timestamp()


@pytest.mark.parametrize("text", ["0s", "-7d", "99999999d", "d", "2026-13-01"])
def test_what_is_no_beginning_is_refused(text: str):
    with pytest.raises(CliError):
        read_start(text, NOW)


PAGE = ROOT / "docs" / "cost.md"


def test_the_page_shows_what_its_price_file_and_its_command_give(lab: fake_server.FakeServer):
    blocks = list(BLOCK.finditer(PAGE.read_text()))
    (prices,) = [block["text"] for block in blocks if block["language"] == "yaml"]
    command, shown = blocks[0]["text"].split(), blocks[1]["text"]
    Path("prices.yaml").write_text(prices)
    lab.clusters.clear()
    lab.records = [
        a_days_record("pipeline"),
        a_record(a_ledger(working=10.8, starting=1.6), name="train", cluster={"attribution": {"team": "speech"}}),
        a_record(a_ledger(heldByUser=3), name="forgotten"),
    ]
    assert [line.split() for line in shown.splitlines()] == table(*command[2:])
