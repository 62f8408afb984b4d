from __future__ import annotations

import pytest

from gpudask.api.resource import default_pool


@pytest.mark.parametrize(
    ("pools", "meant"),
    [
        ({"gpu": True, "cpu": False, "default": True}, "default"),
        ({"gpu": True, "cpu": False, "big": False}, "cpu"),
        ({"gpu": True, "large": True}, "gpu"),
    ],
)
def test_the_pool_that_is_meant_without_a_name(pools: dict[str, bool], meant: str):
    assert default_pool(pools) == meant
