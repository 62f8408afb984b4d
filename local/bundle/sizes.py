"""Sizes as people write them."""

from __future__ import annotations

import re

from local.errors import LocalClusterError

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def parse_size(text: str) -> int:
    """Read a size in bytes, as in 48MiB.

    Raises:
        LocalClusterError: it is no size.
    """
    match = re.fullmatch(r"(\d+) ?(KiB|MiB|GiB|)", text.strip())
    if match is None:
        raise LocalClusterError(f"--size {text!r} is no size: write 48MiB, 1GiB or a number of bytes.")
    return int(match[1]) * _UNITS[match[2]]
