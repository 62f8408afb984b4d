"""What a machine lacks is said in one line each, before anything starts."""

from __future__ import annotations

import pytest

from local.errors import LocalClusterError
from local.host.progress import QUIET
from local.programs import requirements
from local.programs.requirements import Condition, Program, Requirements, ensure_requirements


def test_every_missing_thing_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(requirements.os, "geteuid", lambda: 1000)
    wanted = Requirements(
        (Program("no-such-command", "no-such-package"),),
        (Condition(lambda: False, "a moon: wait for the night."), Condition(lambda: True, "never said")),
    )
    with pytest.raises(LocalClusterError) as error:
        ensure_requirements(wanted, QUIET)
    assert str(error.value).splitlines() == [
        "This machine lacks:",
        "- a moon: wait for the night.",
        "- no-such-command: `apt-get install no-such-package` as root, or your system's packages.",
    ]


def test_nothing_is_installed_where_all_is_there():
    ensure_requirements(Requirements((Program("sh", "no-such-package"),)), QUIET)
