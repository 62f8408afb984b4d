"""Tests that were not seen to pass on a real cluster so far: they are run by who asks for them."""

from __future__ import annotations

import os

import pytest

SWITCH = "GPUDASK_UNPROVEN"


def unproven(why: str) -> pytest.MarkDecorator:
    """Skip the test unless the environment has GPUDASK_UNPROVEN; `why` it is not proven yet."""
    return pytest.mark.skipif(not os.environ.get(SWITCH), reason=f"{why}; {SWITCH}=1 runs it")
