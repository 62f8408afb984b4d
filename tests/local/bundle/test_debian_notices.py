"""Whose files a bundle's programs are, as dpkg says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.bundle.packing import notices

SAYS = """\
diversion by glx-diversions from: /lib/a.so
libc6:amd64, libc6:i386: /lib/a.so
iptables: /usr/sbin/iptables
mount: /bin/mount
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dpkg that writes down each question, and fails as the real one does where it does not know a file."""
    log = tmp_path / "asked"
    command = tmp_path / "bin" / "dpkg"
    command.parent.mkdir()
    (tmp_path / "says").write_text(SAYS)
    command.write_text(f'#!/bin/sh\necho "$@" >> {log}\n/bin/cat {tmp_path / "says"}\nexit 1\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent))
    return log


def test_the_packages_of_all_programs_are_asked_for_once(asked: Path) -> None:
    programs = [Path("/usr/lib/a.so"), Path("/usr/sbin/iptables"), Path("/usr/bin/mount"), Path("/opt/own")]
    assert notices._packages_of(programs) == {"libc6", "iptables", "mount"}
    assert len(asked.read_text().splitlines()) == 1


def test_without_programs_nobody_is_asked(asked: Path) -> None:
    assert notices._packages_of([]) == set()
    assert not asked.exists()


def test_where_there_is_no_dpkg_there_are_no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert notices._packages_of([Path("/usr/sbin/iptables")]) == set()
