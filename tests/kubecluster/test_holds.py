"""Holds of one pool over one another: whatever their order, the size is in the end as it was before the first."""

import asyncio
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Self

import pytest

from gpudask.api.resource import ANNOTATION_HOLDS
from gpudask.api.resource import MIRROR_MANAGER
from gpudask.kubecluster import holds, overrides
from gpudask.kubecluster.holds import Hold
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.timing import Clock, Timing
from tests.kubecluster import fake_server as fake

NOTE = ANNOTATION_HOLDS + "gpu"
WAS = {
    "the manifest's": None,
    "a person's": {"pool": "gpu", "replicas": 7, "by": "ada"},
    "limits": {"pool": "gpu", "min": 1, "max": 3, "by": "ada"},
}


@dataclass
class Program:
    """What a hold needs of a KubeCluster, in front of a cluster that several programs share."""

    body: fake.Json
    name: str = "demo"
    seen: fake.Json = field(default_factory=dict)
    later: timedelta = timedelta(0)

    def require_server(self) -> "Program":
        return self

    def update(self, body: fake.Json) -> None:
        self.seen = body

    async def wait_for_exactly(self, *_: object) -> list[str]:
        return []

    async def cluster(self, _: str) -> fake.Json:
        return copy.deepcopy(self.body)

    async def apply(self, body: fake.Json, _: str) -> fake.Json:
        fake.apply_overrides(self.body, body, overrides.FIELD_MANAGER)
        return copy.deepcopy(self.body)

    rewrite = Server.rewrite

    async def merge(self, _: str, patch: fake.Json, __: str) -> fake.Json:
        fake.merge(self.body, patch)
        return copy.deepcopy(self.body)

    def size(self, pool: str = "gpu") -> fake.Json | None:
        return overrides.entry_of(self.body, pool)

    def pods(self) -> int | None:
        return (self.size() or {}).get("replicas")

    def hold(self, n: int) -> "Held":
        return Held(self, n)

    def forget_in_time(self, name: str) -> None:
        """As if 15 minutes had passed since the hold `name` was set or renewed: its program was killed."""
        ended = (datetime.now(UTC) - timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        for entry in self.body["spec"]["overrides"]:
            if entry.get("by") == name:
                entry["until"] = ended
        annotations = self.body["metadata"]["annotations"]
        if NOTE in annotations:
            noted = holds.Holds.read(annotations[NOTE])
            entries = [entry | {"until": ended} if entry["by"] == name else entry for entry in noted.entries]
            annotations[NOTE] = holds.Holds(noted.before, tuple(entries)).note()


class Held:
    """A hold whose program sleeps between two renewals until the test wakes it.

    `name`: who holds, as the size says.
    """

    def __init__(self, program: Program, n: int) -> None:
        self.name = ""
        self._program = program
        self._renewal_due = asyncio.Event()
        clock = Clock(now=lambda: datetime.now(UTC) + program.later, sleep=self._sleep)
        self._hold = Hold(program, program, "gpu", n, None, sync=None, timing=Timing(clock=clock))

    async def __aenter__(self) -> Self:
        await self._hold.__aenter__()
        self.name = self._program.size()["by"]
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._hold.__aexit__(*error)

    async def renew(self) -> None:
        """Let the time until its next renewal pass; of one that has ended, nothing happens."""
        self._renewal_due.set()
        for _ in range(10):  # turns of the event loop: all that it asks is answered at once
            await asyncio.sleep(0)

    async def _sleep(self, _seconds: float) -> None:
        await self._renewal_due.wait()
        self._renewal_due.clear()


async def leave(hold: Held) -> None:
    await hold.__aexit__(None, None, None)


@pytest.fixture(params=["applied", "mirrored"])
def program(request: pytest.FixtureRequest) -> Program:
    """A size that a person set before comes from this client, or from the stock one through the mirror."""
    body = fake.cluster("demo", "cpu", "gpu")
    if request.param == "mirrored":
        body["metadata"]["managedFields"] = [fake.managed_fields(MIRROR_MANAGER, "gpu")]
    return Program(body)


def orders(holders: str) -> Iterator[list[str]]:
    """Every order in which these holders come and go, each named twice."""
    for order in sorted(set(permutations(holders * 2))):
        if "".join(dict.fromkeys(order)) == holders:  # else the same order under other names
            yield list(order)


def set_before(program: Program, entry: fake.Json | None) -> None:
    if entry is None:
        return
    if program.body["metadata"].get("managedFields"):
        program.body["spec"]["overrides"] = [entry]
    else:
        metadata = {"name": "demo", "namespace": "lab"}
        fake.apply_overrides(
            program.body, {"metadata": metadata, "spec": {"overrides": [entry]}}, overrides.FIELD_MANAGER
        )


@pytest.mark.parametrize("same_size", [True, False], ids=["of one size", "of several"])
@pytest.mark.parametrize("order", [*orders("ab"), *orders("abc")], ids="".join)
@pytest.mark.parametrize("before", WAS.values(), ids=WAS)
async def test_in_any_order_the_newest_counts_and_the_size_of_before_comes_back(
    program: Program, before: fake.Json | None, order: list[str], same_size: bool
):
    set_before(program, before)
    holds: dict[str, Held] = {}
    inside: list[str] = []
    for holder in order:
        if holder in inside:
            await leave(holds[holder])
            inside.remove(holder)
        else:
            holds[holder] = program.hold(2 if same_size else 2 + len(holds))
            await holds[holder].__aenter__()
            inside.append(holder)
        for name in inside:
            await holds[name].renew()
        newest = holds[inside[-1]] if inside else None
        assert (program.size() or {}).get("by") == (newest.name if newest else (before or {}).get("by"))
        assert program.seen["spec"] == program.body["spec"], "what the table shows"

    assert program.size() == before
    assert NOTE not in program.body["metadata"]["annotations"]


async def test_each_hold_is_renewed_also_the_one_below(program: Program):
    lower, upper = program.hold(2), program.hold(2)
    await lower.__aenter__()
    await upper.__aenter__()
    program.later = timedelta(minutes=10)
    await lower.renew()
    await leave(upper)

    size = program.size()
    assert size is not None
    assert size["by"] == lower.name
    assert datetime.fromisoformat(size["until"]) > datetime.now(UTC) + timedelta(minutes=20)


@pytest.mark.parametrize("killed", ["lower", "upper"])
async def test_a_hold_whose_program_was_killed_does_not_come_back(program: Program, killed: str):
    set_before(program, WAS["a person's"])
    holds = {"lower": program.hold(2), "upper": program.hold(4)}
    for hold in holds.values():
        await hold.__aenter__()
    program.forget_in_time(holds.pop(killed).name)
    (living,) = holds.values()

    await living.renew()
    assert (program.size() or {}).get("by") == living.name, "at the latest when it is renewed"
    await leave(living)
    assert program.size() == WAS["a person's"]


async def test_after_holds_that_were_all_killed_the_manifest_counts(program: Program):
    set_before(program, WAS["a person's"])
    killed = program.hold(2)
    await killed.__aenter__()
    program.forget_in_time(killed.name)

    async with program.hold(3):
        assert program.pods() == 3
    assert program.size() is None


@pytest.mark.parametrize("how", ["here", "elsewhere"])
async def test_a_size_that_somebody_sets_ends_all_holds(program: Program, how: str):
    lower, upper = program.hold(2), program.hold(4)
    await lower.__aenter__()
    await upper.__aenter__()
    if how == "here":
        await overrides.set_size(program, "demo", 9, "gpu", by="ada")
    else:  # kubectl and others leave the note where it is
        program.body["spec"]["overrides"] = [{"pool": "gpu", "replicas": 9, "by": lower.name}]
    await lower.renew()
    await upper.renew()
    assert program.pods() == 9

    async with program.hold(3):
        assert program.pods() == 3
        await leave(lower)
        assert program.pods() == 3
    await leave(upper)
    assert program.pods() == 9


async def test_a_size_of_another_pool_leaves_the_holds_alone(program: Program):
    set_before(program, WAS["limits"])
    lower, upper = program.hold(2), program.hold(4)
    await lower.__aenter__()
    await upper.__aenter__()
    await overrides.set_size(program, "demo", 1, "cpu", by="ada")
    await leave(lower)
    await overrides.set_size(program, "demo", None, "cpu", by="ada")
    assert program.pods() == 4
    await leave(upper)
    assert program.size() == WAS["limits"]


@pytest.mark.parametrize("note", ["", "{", "[]", '{"entries": [7]}', '{"entries": [{}]}'])
async def test_a_note_that_is_none_is_no_error(program: Program, note: str):
    set_before(program, WAS["limits"])
    program.body["metadata"]["annotations"] = {NOTE: note}
    async with program.hold(2):
        assert program.pods() == 2
    assert program.size() == WAS["limits"]


async def test_two_holds_of_one_user_have_two_names(program: Program, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(holds, "user", lambda: "ada")
    monkeypatch.setattr(holds.socket, "gethostname", lambda: "notebook-7" + "x" * 200)
    async with program.hold(2) as lower, program.hold(2) as upper:
        names = {lower.name, upper.name}
    assert len(names) == 2
    assert all(name.startswith("hold:ada@notebook-7") and len(name) <= 128 for name in names)


@pytest.mark.parametrize(
    "note", [None, "", "no JSON", "[]", "3", '{"entries": 3}', '{"entries": [3]}', '{"before": []}', "[" * 100_000]
)
def test_a_note_that_is_somebodys_own_text_is_none(note: str | None):
    assert holds.Holds.read(note) == holds.Holds()


def test_a_note_is_read_as_it_was_written():
    noted = holds.Holds({"pool": "gpu", "replicas": 1}, ({"pool": "gpu", "replicas": 4, "by": "hold:a"},))
    assert holds.Holds.read(noted.note()) == noted
