"""A recorded process is ended only while it is the one that was started."""

from __future__ import annotations

import dataclasses
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

from local.host.process_identity import start_ticks
from local.host.processes import Part, Processes, Record
from tests.eventually import eventually

SLEEP = Part("sleeper", ("sleep", "600"))


@pytest.fixture
def processes(tmp_path: Path):
    processes = Processes(tmp_path / "records", tmp_path / "logs")
    yield processes
    processes.stop([record.name for record in processes.all()])


def _rewrite(processes: Processes, record: Record, **changes: object) -> None:
    changed = dataclasses.replace(record, **changes)  # type: ignore[arg-type]
    (processes.records / f"{record.name}.json").write_text(json.dumps(dataclasses.asdict(changed)))


def test_a_running_part_is_started_only_once(processes: Processes):
    assert processes.ensure(SLEEP)
    assert not processes.ensure(SLEEP)


def test_a_part_whose_command_changed_is_restarted(processes: Processes):
    processes.ensure(SLEEP)
    before = processes.find("sleeper")
    assert processes.ensure(Part("sleeper", ("sleep", "601")))
    after = processes.find("sleeper")
    assert before
    assert after
    assert not before.alive
    assert after.alive


def test_a_dead_part_is_started_again(processes: Processes):
    processes.ensure(SLEEP)
    record = processes.find("sleeper")
    assert record
    os.kill(record.pid, 9)
    while record.alive:
        pass
    assert processes.ensure(SLEEP)


def test_restart_keeps_the_command_and_changes_the_process(processes: Processes):
    processes.ensure(SLEEP)
    before = processes.find("sleeper")
    processes.restart("sleeper")
    after = processes.find("sleeper")
    assert before
    assert after
    assert before.pid != after.pid
    assert before.part == after.part


def test_a_recycled_pid_is_never_signalled(processes: Processes):
    processes.ensure(SLEEP)
    record = processes.find("sleeper")
    assert record
    _rewrite(processes, record, start_ticks=record.start_ticks - 1)
    processes.stop(["sleeper"])
    assert record.alive
    assert processes.find("sleeper") is None
    _rewrite(processes, record)


def test_a_record_of_another_boot_is_dead(processes: Processes):
    processes.ensure(SLEEP)
    record = processes.find("sleeper")
    assert record
    assert not dataclasses.replace(record, boot="another").alive


def test_stop_ends_a_part_that_ignores_the_polite_signal(processes: Processes, tmp_path: Path):
    ready = tmp_path / "ready"
    processes.ensure(Part("stubborn", ("sh", "-c", f"trap '' TERM; touch {ready}; while :; do sleep 1; done")))
    record = processes.find("stubborn")
    assert record
    while not ready.exists():
        pass
    processes.stop(["stubborn"], patience_seconds=0.2)
    assert not record.alive


def test_what_a_part_prints_is_in_its_log(processes: Processes):
    processes.ensure(Part("speaker", ("sh", "-c", "echo to stdout; echo to stderr >&2")))
    record = processes.find("speaker")
    assert record
    while record.alive:
        pass
    assert processes.log_of("speaker").read_text() == "to stdout\nto stderr\n"


def test_a_part_holds_no_file_of_who_started_it(processes: Processes, tmp_path: Path):
    with (tmp_path / "lock").open("w") as file:
        os.set_inheritable(file.fileno(), True)  # noqa: FBT003 - its parameters have no names
        processes.ensure(SLEEP)
    record = processes.find("sleeper")
    assert record

    def opened() -> set[Path]:
        found = set()
        for descriptor in Path(f"/proc/{record.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.add(descriptor.readlink())
        return found

    # Once it is loaded: until then it has its libraries open.
    eventually(
        lambda: opened() == {Path("/dev/null"), processes.log_of("sleeper")}, "it has no other file", show=opened
    )


def test_start_ticks_of_no_process_is_none():
    assert start_ticks(2**22 + 1) is None
