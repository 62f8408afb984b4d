"""The operator's clock never jumps, and gets the API server's time from the `Date` of its answers."""

from __future__ import annotations

from email.utils import formatdate
from math import inf
from random import Random

import pytest

from gpudask.clients.clock import Clock

NOW = 1_800_000_000.0


class Machine:
    """A machine whose wall clock somebody sets, and an API server that has its own."""

    def __init__(self, *, wall: float = 0.0, server: float = 0.0) -> None:
        self.passed, self.wall, self.server = 100.0, wall, server
        self.clock = Clock(monotonic=lambda: self.passed, wall=lambda: NOW + self.passed + self.wall)

    def asks(self, *, times: int = 1, takes: float = 0.0) -> None:
        for _ in range(times):
            asked_at = self.clock.request_sent()
            self.passed += takes
            self.clock.response_received(formatdate(NOW + self.passed + self.server, usegmt=True), asked_at)


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_wall_clock_that_jumps_does_not_move_the_operators(jump: float):
    machine = Machine()
    began = machine.clock.now()
    machine.passed, machine.wall = machine.passed + 10, jump
    assert machine.clock.now() - began == 10
    assert machine.clock.wall_ahead() == jump
    assert machine.clock.server_ahead() == 0


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_the_operators_time_is_the_api_servers_whatever_the_wall_clock_says(ahead: float):
    machine = Machine(wall=ahead)
    machine.asks()
    assert machine.clock.now() == pytest.approx(NOW + machine.passed, abs=1)
    assert machine.clock.wall_ahead() == pytest.approx(ahead, abs=1)
    assert machine.clock.server_ahead() == 0


@pytest.mark.parametrize("speed", [1.0, 1.00005])
def test_each_answer_tells_the_api_servers_time_more_exactly(speed: float):
    """Its clock may run a little faster, and answers take their time."""
    machine = Machine(server=0.7)
    machine.asks()
    machine.clock.now()
    for n in range(300):
        machine.passed += 1.37
        machine.server += 1.37 * (speed - 1)
        machine.asks(takes=0.01 * (n % 3))
    server_time = machine.clock.now() + machine.clock.server_ahead()
    assert server_time == pytest.approx(NOW + machine.passed + machine.server, abs=0.03)


@pytest.mark.parametrize("drift", [0.0, 5e-4, -5e-4], ids="{:+g} s a second".format)
@pytest.mark.parametrize(("pause", "exact"), [(2.7, 0.1), (10.0, 0.17)])
def test_after_fifty_answers_it_is_known_and_stays_known(pause: float, exact: float, drift: float):
    """Two operators that differ by more would charge GPUs for the difference at each takeover."""
    for seed in range(40):
        random = Random(seed)  # noqa: S311 - the same each time
        machine = Machine(server=10 * random.random())
        errors = []
        for _ in range(200):
            passed = pause * random.random()
            machine.passed += passed
            machine.server += drift * passed
            machine.asks(takes=0.02 * random.random())
            server_time = machine.clock.now() + machine.clock.server_ahead()
            errors.append(abs(server_time - NOW - machine.passed - machine.server))
        assert max(errors[50:]) <= exact, f"seed {seed}"


def test_two_api_servers_that_differ_a_little_are_both_believed():
    machine = Machine()
    for n in range(100):
        machine.passed += 1.13
        machine.server = 0.4 * (n % 2)
        machine.asks()
    server_time = machine.clock.now() + machine.clock.server_ahead()
    assert NOW + machine.passed <= server_time <= NOW + machine.passed + 0.4


def test_an_answer_in_between_that_is_wrong_moves_nothing():
    machine = Machine()
    machine.asks(times=3)
    before = machine.clock.server_ahead()
    machine.server = -3600.0
    machine.asks(times=2)
    assert machine.clock.server_ahead() == before


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_an_api_servers_clock_that_is_set_is_followed_and_the_operators_does_not_move(jump: float):
    machine = Machine()
    machine.asks()
    began = machine.clock.now()
    machine.server = jump
    machine.asks(times=3)
    assert machine.clock.now() == began
    assert machine.clock.server_ahead() == pytest.approx(jump, abs=1)


def test_of_several_api_servers_one_that_is_wrong_is_not_believed():
    machine = Machine()
    machine.asks()
    for _ in range(10):
        machine.server = 3600.0
        machine.asks(times=2)
        machine.server = 0.0
        machine.asks()
    assert machine.clock.server_ahead() == pytest.approx(0, abs=0.5)


def test_answers_that_take_their_time_do_not_move_it():
    machine = Machine()
    machine.asks()
    for takes in (0.2, 25.0, 0.9, 29.0, 3.0) * 3:
        machine.asks(takes=takes)
    assert machine.clock.server_ahead() == pytest.approx(0, abs=0.5)


@pytest.mark.parametrize("date", [None, "", "yesterday", "Mon, 99 Foo 2026 10:00:00 GMT", "\ud800", "1" * 5000])
def test_an_answer_without_a_date_tells_nothing(date: str | None):
    clock = Clock()
    clock.response_received(date, clock.request_sent())
    assert clock.server_ahead() == 0


# --- when the API server last answered nobody ---


def unanswered(machine: Machine) -> float:
    """When it last answered nobody, in seconds of `passed`."""
    return machine.clock.unanswered_at() - machine.clock.now() + machine.passed


def test_a_request_that_fails_without_an_answer_shows_an_api_server_that_does_not_work():
    machine = Machine()
    assert unanswered(machine) == -inf
    machine.asks()
    machine.passed += 10
    machine.clock.response_missed(machine.passed)
    assert unanswered(machine) == 110
    machine.passed += 10
    machine.asks()
    assert unanswered(machine) == 110


def test_one_that_fails_while_others_are_answered_shows_nothing():
    machine = Machine()
    asked_at = machine.passed
    machine.asks(takes=2)
    machine.passed += 10
    machine.clock.response_missed(asked_at)
    assert unanswered(machine) == -inf


@pytest.mark.parametrize(("waited", "found"), [(0.5, -inf), (3.0, 103.0)])
def test_who_does_not_wait_for_an_answer_has_to_have_waited_a_while(waited: float, found: float):
    machine = Machine()
    asked_at = machine.passed
    machine.passed += waited
    machine.clock.response_missed(asked_at, cancelled=True)
    assert unanswered(machine) == found
