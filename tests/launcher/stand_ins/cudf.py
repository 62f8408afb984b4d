"""cuDF's options, which it reads from the environment as the real one does."""

import os
from typing import Any

options = {"spill": os.environ.get("CUDF_SPILL") == "on", "spill_stats": int(os.environ.get("CUDF_SPILL_STATS", "0"))}


def set_option(name: str, value: Any):
    options[name] = value


def get_option(name: str):
    return options[name]
