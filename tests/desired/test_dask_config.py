"""Dask reads from the environment what the resource says."""

from __future__ import annotations

from typing import Any

import dask.config
import pytest
from hypothesis import given, strategies as st

from gpudask.desired.pod import dask_environment


def read(config: dict[str, Any]) -> dict[str, Any]:
    return dask.config.collect_env({item["name"]: item["value"] for item in dask_environment(config)})


def canonical(value: Any) -> Any:
    """Dask takes `-` and `_` in keys for the same."""
    return {key.replace("-", "_"): canonical(v) for key, v in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"distributed": {"worker": {"memory": {"target": 0.6, "spill": False}}}},
        {"distributed": {"scheduler": {"work-stealing-interval": "100ms", "allowed-failures": 3}}},
        {"distributed": {"nanny": {"environ": {"OMP_NUM_THREADS": 1}}}},
        {"distributed": {"worker": {"resources": {"GPU": 1, "MEMORY": 2e9}}}},
        {"distributed": {"logging": {"distributed.worker": "debug", "bokeh": "error"}}},
        {"distributed": {"scheduler": {"preload": ["a.py", "b.py"]}}},
        {"array": {"backend": "cupy"}, "dataframe": {"convert-string": None}},
        {"x": {"y": "1"}},
        {"x": {"y": "true", "z": "None", "w": "null"}},
        {"x": {"y": "{[]: 1}"}},
        {"x": {"y": {}}},
        {"temporary-directory": "/scratch"},
    ],
)
def test_a_configuration_arrives_as_written(config: dict[str, Any]):
    assert canonical(read(config)) == canonical(config)


keys = st.from_regex(r"[a-z][a-z0-9]{0,4}(-[a-z0-9]{1,4})?", fullmatch=True)
odd_keys = st.from_regex(r"[A-Za-z._][A-Za-z0-9._]{0,6}", fullmatch=True)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
plain |= st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | odd_keys, inner, max_size=3), max_leaves=6
)


@given(st.dictionaries(keys, values, max_size=3))
def test_any_configuration_arrives_as_written(config: dict[str, Any]):
    found = read(config)
    assert canonical(found) == canonical(config)
