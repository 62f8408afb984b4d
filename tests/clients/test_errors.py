"""The errors of the clients, as people read them."""

from __future__ import annotations

from gpudask.clients.errors import ApiError


def test_a_refusal_is_one_short_line_of_a_log():
    conflicts = (
        'Apply failed with 2 conflicts: conflicts with "kubectl":\n- .spec.type\n- .spec.selector' + "\n- .x" * 999
    )
    error = ApiError(409, "Conflict", conflicts, "PATCH /x")
    assert str(error).startswith(
        'PATCH /x: 409 Conflict: Apply failed with 2 conflicts: conflicts with "kubectl": - .spec'
    )
    assert len(str(error).splitlines()) == 1
    assert len(str(error)) < 1100


def test_what_a_refusal_is_about_is_found_in_all_of_its_message():
    assert ApiError(403, "Forbidden", "x" * 5000 + " exceeded quota", "POST /x").quota
