"""The name of a new cluster: as given, or made from who asks. Pure."""

from __future__ import annotations

import re

from gpudask.api.spec import MAX_CLUSTER_NAME

DEFAULT = "{user}-{uuid}"
_NONCE_LENGTH = 5


def cluster_name(wanted: str | None, *, user: str, nonce: str) -> str:
    """`wanted` with `{user}` and `{uuid}` filled in, as the stock client does; without it a new name.

    Args:
        wanted: checked by the resource's own rules later.
        user: whose; reduced to what a name may have.
        nonce: lower-case letters and digits that nobody else has, of which five are used.
    """
    if wanted is not None and "{" not in wanted:
        return wanted
    pattern = wanted or DEFAULT
    fixed = len(pattern.replace("{user}", "").replace("{uuid}", "")) + _NONCE_LENGTH * pattern.count("{uuid}")
    who = _plain(user)[: max(1, MAX_CLUSTER_NAME - fixed)].rstrip("-")
    return pattern.replace("{user}", who).replace("{uuid}", nonce[:_NONCE_LENGTH])


def _plain(user: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-")
    return plain if plain[:1].isalpha() else f"dask-{plain}".rstrip("-")
