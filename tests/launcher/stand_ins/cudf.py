"""cuDF's options, which it reads from the environment as the real one does."""

import os

options = {"spill": os.environ.get("CUDF_SPILL") == "on", "spill_stats": int(os.environ.get("CUDF_SPILL_STATS", "0"))}


def set_option(name, value):
    options[name] = value


def get_option(name):
    return options[name]
