"""Who may read the metrics: each address has a share of its own, and no number of them costs more than is said."""

from __future__ import annotations

from gpudask.metrics.server import ADDRESSES, Readers

PROMETHEUS = "10.0.0.1"


def addresses(number: int, first: int = 0) -> list[str]:
    return [f"10.1.0.{first + each}" for each in range(number)]


def read(them: Readers, address: str, now: float) -> bool:
    """Read in no time; whether it was admitted."""
    admitted = them.admit(address, now)
    if admitted:
        them.release(address)
    return admitted


def hammered(them: Readers, attackers: list[str], *, seconds: int, every: int = 15) -> tuple[list[bool], int]:
    """Whether Prometheus was admitted, each time it read; and how often the attackers were, ten tries a second each."""
    answers, taken = [], 0
    for tenth in range(10 * seconds):
        now = 100.0 + tenth / 10
        if tenth % (10 * every) == 0:
            answers.append(read(them, PROMETHEUS, now))
        taken += sum(read(them, attacker, now) for attacker in attackers)
    return answers, taken


def test_one_who_reads_without_pause_is_held_back_and_another_reads_on():
    answers, taken = hammered(Readers(), addresses(1), seconds=120)
    assert all(answers)
    assert taken <= 2 * 120


def test_as_many_addresses_as_are_told_apart_may_read_without_pause():
    answers, taken = hammered(Readers(), addresses(ADDRESSES), seconds=300)
    assert all(answers)
    assert taken <= 2 * 300 + 10 * (ADDRESSES + 1)


def test_of_more_addresses_those_that_came_late_share_what_one_has():
    them = Readers()
    assert read(them, PROMETHEUS, 99.0)
    answers, taken = hammered(them, addresses(200), seconds=300)
    assert all(answers), "it keeps its place"
    assert taken <= 2 * 300 + 10 * (ADDRESSES + 1)
    assert len(them.remembered) <= ADDRESSES + 1


def test_a_place_is_free_again_once_nobody_reads_from_there():
    them = Readers()
    for address in addresses(ADDRESSES):
        assert read(them, address, 100.0)
    for address in addresses(50, first=100):
        read(them, address, 100.0)
    assert not read(them, PROMETHEUS, 100.0), "the others' share is used up"
    assert read(them, PROMETHEUS, 1000.0)
    assert them.remembered == {PROMETHEUS}


def test_slow_readers_of_many_addresses_keep_nobody_else_out():
    them = Readers()
    for now, wanted in (100.0, True), (120.0, True), (140.0, False):
        assert [them.admit(address, now) for address in addresses(15)] == [wanted] * 15
    assert them.admit(PROMETHEUS, 140.0)


def test_who_has_read_may_read_again_and_one_who_reads_still_keeps_its_place():
    them = Readers()
    assert [them.admit(PROMETHEUS, 100.0) for _ in range(3)] == [True, True, False]
    assert not them.admit(PROMETHEUS, 1000.0), "both readings are under way, however long"
    them.release(PROMETHEUS)
    assert them.admit(PROMETHEUS, 1000.0)
