"""The scheduler's answer as values; what is not understood is not acted on."""

from __future__ import annotations

import contextlib
import copy
import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.api.untrusted_text import quote
from gpudask.scaling.demand import (
    Clients,
    Listener,
    OwnerTime,
    UnknownProtocolError,
    parse,
    parse_health,
    parse_refusals,
)
from tests.documented_protocol import DEMAND

ANSWER: dict[str, Any] = {
    "protocol": 1,
    "version": "S-1/17",
    "scheduler_id": "S-1",
    "desired_version": "5f2c",
    "features": {"demand": "", "fence": ""},
    "tasks": 21,
    "demand": [
        {
            "resources": {"MEMORY": 5, "GPU": 1.0},
            "waiting": 1,
            "unrunnable": 3,
            "processing": 2,
            "seconds": 5.2,
            "unknown": 1,
            "since_seconds": 0.8,
        }
    ],
    "workers": [
        {
            "name": "demo-gpu-worker-0-1f3a9-0",
            "address": "tcp://x",
            "pool": "gpu",
            "status": "running",
            "nthreads": 1,
            "resources": {"GPU": 1.0},
            "processing": 1,
            "own": 1,
            "idle_seconds": 0.0,
            "blockers": ["running"],
            "held_keys": 3,
            "held_bytes": 8,
            "retiring": "",
            "detail": "",
        }
    ],
}


def test_each_field_of_the_documented_answer_is_read():
    demand = parse(DEMAND)
    read_elsewhere = {"protocol", "demand", "workers", "ignored", "clients", "listeners"}
    assert {name: getattr(demand, name) for name in DEMAND.keys() - read_elsewhere} == {
        name: DEMAND[name] for name in DEMAND.keys() - read_elsewhere
    }
    for row, requirement in zip(DEMAND["demand"], demand.requirements, strict=True):
        assert row | {"resources": dict(requirement.resources)} == {
            name: getattr(requirement, name) for name in row
        } | {"resources": row["resources"]}
    for row, worker in zip(DEMAND["workers"], demand.workers, strict=True):
        used = row.keys() - {"resources"}  # what a worker offers is for people: the operator knows it by its pool
        assert {name: getattr(worker, name) for name in used} == {name: row[name] for name in used} | {
            "blockers": tuple(row["blockers"]),
            "owners": tuple(OwnerTime(**owner) for owner in row["owners"]),
        }
    assert demand.listeners == {protocol: Listener(**row) for protocol, row in DEMAND["listeners"].items()}
    assert demand.clients is not None
    assert {name: getattr(demand.clients, name) for name in DEMAND["clients"]} == DEMAND["clients"]
    [ignored] = DEMAND["ignored"]
    [said] = demand.ignored
    assert str(ignored["tasks"]) in said
    assert ignored["resources"] in said
    assert ignored["why"] in said


def test_an_answer_is_read_by_resource_and_by_pod():
    demand = parse(ANSWER)
    assert demand.requirements[0].resources == (("GPU", 1.0), ("MEMORY", 5.0))
    assert demand.requirements[0].active == 5
    assert [worker.name for worker in demand.workers_of("demo-gpu-worker-0-1f3a9")] == ["demo-gpu-worker-0-1f3a9-0"]


def test_fields_that_a_newer_preload_adds_are_ignored():
    assert parse(ANSWER | {"more": 1}).tasks == 21


@pytest.mark.parametrize("protocol", [0, 2, "1", None])
def test_another_protocol_is_refused_with_what_to_do(protocol: object):
    with pytest.raises(UnknownProtocolError, match="restart the scheduler pod"):
        parse(ANSWER | {"protocol": protocol})


@pytest.mark.parametrize(
    "field", ["version", "scheduler_id", "desired_version", "tasks", "demand", "workers", "features"]
)
def test_a_missing_field_is_refused(field: str):
    with pytest.raises(UnknownProtocolError, match=field):
        parse({key: value for key, value in ANSWER.items() if key != field})


def without(answer: Any, path: tuple[Any, ...], value: Any) -> Any:
    """`answer` with `value` at `path`."""
    changed = copy.deepcopy(answer)
    place = changed
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return changed


FIELDS = [
    ("version",),
    ("scheduler_id",),
    ("desired_version",),
    ("tasks",),
    ("features",),
    ("features", "fence"),
    ("demand",),
    ("workers",),
    *(("demand", 0, name) for name in ANSWER["demand"][0]),
    ("demand", 0, "resources", "GPU"),
    *(("workers", 0, name) for name in ANSWER["workers"][0] if name != "resources"),
    ("workers", 0, "blockers", 0),
]
CLIENTS = {"connected": 1, "absent_seconds": 0.0, "ever": False}
OTHERS = [
    ("offers",),
    ("listeners",),
    ("idle_seconds",),
    ("clients",),
    ("ignored",),
    ("demand", 0, "next_seconds"),
    ("workers", 0, "sick"),
    ("workers", 0, "busy_seconds"),
    ("workers", 0, "owners"),
]
# Nothing of these is any field's value.
WRONG = [True, b"x", object(), [[[]]], [None], {"a": {"b": {"c": 1}}}]


@pytest.mark.parametrize("path", [*FIELDS, *OTHERS], ids=lambda path: ".".join(map(str, path)))
@pytest.mark.parametrize("value", WRONG, ids=["bool", "bytes", "object", "lists", "null in a list", "deep"])
def test_a_value_of_the_wrong_type_is_refused_by_its_name(path: tuple[Any, ...], value: Any):
    with pytest.raises(UnknownProtocolError, match=str(path[-1])):
        parse(without(ANSWER, path, value))


@pytest.mark.parametrize("path", [("demand", 0, "waiting"), ("workers", 0, "own"), ("tasks",)])
@pytest.mark.parametrize("number", [-1, 10**16, 10**400, 1.5, math.nan, math.inf, "1", None])
def test_a_count_is_a_number_of_zero_or_more_that_can_be(path: tuple[Any, ...], number: Any):
    with pytest.raises(UnknownProtocolError, match=str(path[-1])):
        parse(without(ANSWER, path, number))


@pytest.mark.parametrize(
    "path", [("demand", 0, "seconds"), ("demand", 0, "resources", "GPU"), ("workers", 0, "idle_seconds")]
)
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 10**400, "1", None])
def test_an_amount_is_finite(path: tuple[Any, ...], number: Any):
    with pytest.raises(UnknownProtocolError, match=str(path[-1])):
        parse(without(ANSWER, path, number))


@pytest.mark.parametrize("field", CLIENTS)
@pytest.mark.parametrize("value", ["1", None, [], math.nan, math.inf])
def test_what_is_wrong_about_clients_is_refused_by_its_name(field: str, value: Any):
    with pytest.raises(UnknownProtocolError, match=field):
        parse(ANSWER | {"clients": CLIENTS | {field: value}})


@pytest.mark.parametrize("said", [{}, {"clients": None}], ids=["older", "off"])
def test_a_preload_may_say_nothing_of_clients(said: dict[str, Any]):
    assert parse(ANSWER | said).clients is None


def test_a_time_without_clients_is_held_within_what_a_date_can_say():
    clients = parse(ANSWER | {"clients": CLIENTS | {"absent_seconds": 1e300, "more": "from a newer one"}}).clients
    assert clients == Clients(connected=1, absent_seconds=1e9, ever=False)


def test_durations_are_held_within_what_a_date_can_say():
    longest = parse(without(ANSWER, ("workers", 0, "idle_seconds"), 1e300)).workers[0].idle_seconds
    assert longest == 1e9
    assert parse(without(ANSWER, ("workers", 0, "idle_seconds"), -0.001)).workers[0].idle_seconds == 0.0


@pytest.mark.parametrize("field", ["port", "why"])
@pytest.mark.parametrize("value", [None, [], math.nan, {}, -1])
def test_what_is_wrong_about_a_listener_is_refused_by_its_name(field: str, value: Any):
    listener = {"port": 8788, "why": ""} | {field: value}
    with pytest.raises(UnknownProtocolError, match=field):
        parse(ANSWER | {"listeners": {"ucxx": listener}})


def test_an_older_preload_listens_nowhere_else():
    assert parse(ANSWER).listeners == {}


OWNER = {"owner": "team-a", "seconds": 1.5, "share": 1.0}


@pytest.mark.parametrize("field", OWNER)
@pytest.mark.parametrize("value", [None, [], math.nan, math.inf, {}])
def test_what_is_wrong_about_an_owner_is_refused_by_its_name(field: str, value: Any):
    with pytest.raises(UnknownProtocolError, match=field):
        parse(without(ANSWER, ("workers", 0, "owners"), [OWNER | {field: value}]))


@pytest.mark.parametrize("share", [-0.1, 1.1, "1"])
def test_a_share_is_between_nothing_and_all(share: Any):
    with pytest.raises(UnknownProtocolError, match="share"):
        parse(without(ANSWER, ("workers", 0, "owners"), [OWNER | {"share": share}]))


def test_an_older_preload_measures_no_work():
    worker = parse(ANSWER).workers[0]
    assert (worker.busy_seconds, worker.owners) == (None, ())


def test_an_owners_name_is_as_long_as_a_labels_value():
    owners = parse(without(ANSWER, ("workers", 0, "owners"), [OWNER | {"owner": FORGED}])).workers[0].owners
    assert len(owners[0].owner) <= 63
    assert owners[0].owner == quote(owners[0].owner)


@pytest.mark.parametrize("answer", [None, [], 3, "x", {}, {"protocol": True}, {"protocol": [[]] * 100}])
def test_what_is_no_answer_at_all_is_refused(answer: Any):
    with pytest.raises(UnknownProtocolError) as caught:
        parse(answer)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("workers",), ANSWER["workers"] * 10_001),
        (("demand",), ANSWER["demand"] * 2_001),
        (("demand", 0, "resources"), {f"R{i}": 1.0 for i in range(65)}),
        (("features",), {f"f{i}": "" for i in range(65)}),
        (("listeners",), {f"p{i}": {"port": 1, "why": ""} for i in range(65)}),
        (("workers", 0, "blockers"), ["x"] * 65),
        (("workers", 0, "owners"), [{"owner": "a", "seconds": 1.0, "share": 0.0}] * 65),
        (("version",), "v" * 201),
        (("version",), "v\n"),
        (("version",), "v\u202e"),
    ],
)
def test_what_is_longer_than_an_honest_answer_is_refused(path: tuple[Any, ...], value: Any):
    with pytest.raises(UnknownProtocolError, match=str(path[-1])) as caught:
        parse(without(ANSWER, path, value))
    assert len(str(caught.value)) < 500


FORGED = "busy\n2026-01-01 INFO all is well \x1b[31m\u202e" + "x" * 10_000


def test_no_text_of_an_answer_is_taken_as_it_is():
    answer = without(ANSWER, ("features", "fence"), f"Traceback\n  {FORGED}")
    for name in ("name", "address", "pool", "status", "retiring", "detail"):
        answer["workers"][0][name] = FORGED
    answer["workers"][0] |= {"blockers": [FORGED], "sick": FORGED}
    answer["demand"][0]["resources"] = {FORGED: 1.0}
    answer["ignored"] = [{"resources": FORGED, "tasks": 1, "why": FORGED}]
    answer["offers"] = {FORGED: {FORGED: 1.0}}
    answer["listeners"] = {FORGED: {"port": 1, "why": FORGED}}
    demand = parse(answer)
    worker = demand.workers[0]
    shown = [worker.name, worker.address, worker.pool, worker.status, worker.retiring, worker.detail, worker.sick]
    shown += [*worker.blockers, *demand.features.values(), *demand.ignored, *demand.offers, str(demand.requirements[0])]
    shown += [*demand.listeners, *(each.why for each in demand.listeners.values())]
    for text in shown:
        assert text == quote(text, 500), "it is not clean"
    assert demand.features["fence"].startswith("2026-01-01"), "the last line says it"


def test_a_name_that_only_looks_like_a_resource_is_another():
    assert parse(without(ANSWER, ("demand", 0, "resources"), {"GPU\u200b": 1})).requirements[0].resources != (
        ("GPU", 1.0),
    )


def test_thousands_of_workers_of_one_pod_are_read_in_time():
    row = ANSWER["workers"][0]
    began = time.process_time()
    demand = parse(ANSWER | {"workers": [row | {"name": f"p-{i}"} for i in range(10_000)]})
    assert len(demand.workers_of("p")) == 10_000
    assert time.process_time() - began < 2.0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.tuples(st.sampled_from([*FIELDS, *OTHERS]), json_values), min_size=1, max_size=3))
def test_whatever_json_comes_is_read_or_refused(changes: list[tuple[tuple[Any, ...], Any]]):
    answer: Any = ANSWER
    for path, value in changes:
        with contextlib.suppress(LookupError, TypeError):
            answer = without(answer, path, value)
    with contextlib.suppress(UnknownProtocolError):
        str(parse(answer).requirements)


def test_refusals_and_health_have_their_shape_too():
    assert parse_refusals({"refused": [{"pod": "p", "why": "busy\nnow", "more": 1}]}) == {"p": "busy now"}
    assert parse_refusals({}) == {}
    assert parse_health({"error": "Traceback\nImportError: x\n"}) == "ImportError: x"
    for wrong in ({"refused": {}}, {"refused": [{"pod": 1, "why": ""}]}, {"refused": [{"pod": "p"}]}, [], None):
        with pytest.raises(UnknownProtocolError):
            parse_refusals(wrong)
    for wrong in ({"error": 1}, {"error": ["x"]}, "x"):
        with pytest.raises(UnknownProtocolError):
            parse_health(wrong)
