"""The bookkeeping of transfers, against recipients that are played: what is asked of whom, and when again."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudask.preload.drains.result_transfers import (
    OUT_OF_STEP,
    ARRIVAL_SECONDS,
    REPORT_AFTER_SECONDS,
    Transfers,
    short_error,
)

LOOK_SECONDS = 0.1


class Recipients:
    """Workers that copy what they are asked for, all or nothing, as distributed's do.

    `bad`: key -> how often it fails before it arrives. `poisoned`: whose next request fails whatever it is for.
    """

    def __init__(self, *addresses, bad=None, good=(), silent=()):
        self.load = dict.fromkeys(addresses, 0)
        self.bad = dict(bad or {})
        self.silent = set(silent)
        self.left = dict.fromkeys([*self.bad, *good], 1)
        self.asked = []  # (when, address, keys)
        self.poisoned = set()
        self.now = 0.0
        self.transfers = Transfers(self.ask)

    def ask(self, address, keys):
        self.asked.append((self.now, address, list(keys)))

    def look(self):
        before = len(self.asked)
        self.transfers.step(dict(self.left), dict(self.load), set(self.load), self.now)
        for _, address, keys in self.asked[before:]:
            self.answer(address, keys)
        self.now = round(self.now + LOOK_SECONDS, 3)

    def answer(self, address, keys):
        if self.silent.intersection(keys):
            return
        guilty = [key for key in keys if self.bad.get(key, 0) > 0]
        if address in self.poisoned:
            self.poisoned.discard(address)
            self.transfers.failed(keys, address, f"{OUT_OF_STEP}, 'keys': ...")
        elif guilty:
            self.poisoned.add(address)
            for key in guilty:
                self.bad[key] -= 1
            self.transfers.failed(keys, address, f"ValueError: of {guilty[0]}")
        else:
            for key in keys:
                del self.left[key]

    def run(self, seconds):
        for _ in range(int(seconds / LOOK_SECONDS)):
            self.look()

    @property
    def stuck(self):
        return self.transfers.stuck(self.now)


ALWAYS = 10**9


def test_what_can_be_copied_arrives_and_one_bad_value_is_told_soon_with_its_error():
    seen = Recipients("a", bad={"x": ALWAYS}, good=range(1000))
    seen.run(10)
    assert set(seen.left) == {"x"}
    assert seen.stuck == {"x": "ValueError: of x"}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60), st.integers(0, 5), st.integers(1, 4))
def test_whatever_is_bad_the_rest_arrives_and_nothing_is_asked_for_often(good, bad, workers):
    names = [f"bad{i}" for i in range(bad)]
    seen = Recipients(*range(workers), bad=dict.fromkeys(names, ALWAYS), good=range(good))
    seen.run(60)
    assert set(seen.left) == set(names) == set(seen.stuck)
    after = len(seen.asked)
    seen.run(1200)
    assert len(seen.asked) - after <= 2 * bad * 7, "six tries each in the 20 minutes, and those out of step"


def test_it_is_tried_again_ever_slower_of_another_worker_each_time():
    seen = Recipients("a", "b", bad={"x": ALWAYS})
    seen.run(100)
    whens = [when for when, _, _ in seen.asked]
    waits = [round(later - sooner) for sooner, later in itertools.pairwise(whens)]
    told_at = [wait for wait in waits if wait]  # 0: the same again, after a connection was out of step
    assert told_at == sorted(told_at)
    assert told_at[:5] == [1, 2, 4, 8, 16]
    assert {address for _, address, _ in seen.asked[:2]} == {"a", "b"}


def test_what_fails_for_a_while_arrives_in_the_end():
    seen = Recipients("a", bad={"x": 5})
    seen.run(10)
    assert seen.stuck
    seen.run(60)
    assert (seen.left, seen.stuck, seen.transfers.last_error) == ({}, {}, "")


def test_values_are_asked_for_at_once_and_spread_by_load():
    seen = Recipients("full", "empty", good=range(10))
    seen.load["full"] = 4
    seen.look()
    assert {address: len(keys) for _, address, keys in seen.asked} == {"full": 3, "empty": 7}
    assert seen.left == {}


def test_who_takes_no_data_any_more_is_replaced_without_blame():
    seen = Recipients("a", "b", good=["x"], silent=["x"])
    seen.look()
    ((_, first, _),) = seen.asked
    del seen.load[first]
    seen.silent.clear()
    seen.transfers.step(dict(seen.left), dict(seen.load), {"a", "b"}, seen.now)
    assert seen.asked[-1][1] != first
    assert seen.transfers.last_error == ""


def test_a_recipient_that_dies_is_a_failure_so_that_a_deadly_value_does_not_end_one_after_another():
    seen = Recipients(*range(100), good=["x"], silent=["x"])
    for _ in range(1000):
        asked = len(seen.asked)
        seen.look()
        for _, address, _ in seen.asked[asked:]:
            del seen.load[address]
    assert len(seen.asked) <= 8, "in 100 s"
    assert "went away" in seen.stuck["x"]


def test_silence_is_a_failure_after_a_while_and_told():
    seen = Recipients("a", good=["x", "y"], silent=["x"])
    seen.run(ARRIVAL_SECONDS - 1)
    assert len(seen.asked) == 1
    seen.run(REPORT_AFTER_SECONDS + ARRIVAL_SECONDS + 5)
    assert set(seen.left) == {"x"}
    assert "nothing arrived within 30 s" in seen.stuck["x"]


def test_a_large_value_has_the_time_that_it_takes():
    seen = Recipients("a", good=["x"], silent=["x"])
    seen.left["x"] = 20_000_000_000
    seen.run(900)
    assert len(seen.asked) == 1


def test_what_is_dropped_meanwhile_is_forgotten():
    seen = Recipients("a", bad={"x": ALWAYS}, good=[1, 2, 3])
    seen.run(10)
    seen.left.clear()
    seen.look()
    assert (seen.stuck, seen.transfers.last_error, seen.transfers._blamed) == ({}, "", {})


def test_a_failure_of_somebody_elses_copy_is_no_news():
    seen = Recipients("a", "b", good=["x"], silent=["x"])
    seen.look()
    ((_, asked, _),) = seen.asked
    assert not seen.transfers.failed(["y"], asked, "?")
    assert not seen.transfers.failed(["x"], "other", "?")
    assert seen.transfers.failed(["x"], asked, "?")


def test_a_recipient_that_finds_nobody_to_copy_from_again_and_again_has_failed():
    seen = Recipients("a", good=["x"], silent=["x"])
    seen.look()
    assert [seen.transfers.not_found(["x", "y"], "a") for _ in range(2)] == [False, True]
    seen.look()
    assert "connection broke" in seen.transfers.last_error


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ValueError('no such device here')", "ValueError: no such device here"),
        (
            "TypeError('Could not serialize object of type X\\nTraceback (most",
            "TypeError: Could not serialize object of type X",
        ),
        ('KeyError("it\'s")', "KeyError: it's"),
        ("ModuleNotFoundError(\"No module named 'cupy'\")", "ModuleNotFoundError: No module named 'cupy'"),
        ("AssertionError({'op': 'get_data', 'keys': {'x'}})", OUT_OF_STEP + ", 'keys': {'x'}}"),
        ("something else", "something else"),
        ("", ""),
    ],
)
def test_errors_are_told_in_plain_words(text, words):
    assert short_error(text) == words
