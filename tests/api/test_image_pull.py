"""An image that cannot be pulled: the image and the last cause, and whether it can get better."""

from __future__ import annotations

import pytest

from gpudask.api.image_pull import is_final, short_message

NOT_FOUND = (
    'failed to pull and unpack image "docker.io/gpudask/dask:0.1.0": failed to resolve reference'
    ' "docker.io/gpudask/dask:0.1.0": docker.io/gpudask/dask:0.1.0: not found'
)
DENIED = (
    'failed to pull and unpack image "docker.io/gpudask/dask:0.1.0": failed to resolve reference'
    ' "docker.io/gpudask/dask:0.1.0": pull access denied, repository does not exist or may require authorization:'
    " server message: insufficient_scope: authorization failed"
)
NO_HOST = (
    'failed to pull and unpack image "registry.lab:5000/me/dask:1": failed to resolve reference'
    ' "registry.lab:5000/me/dask:1": failed to do request: Head "https://registry.lab:5000/v2/me/dask/manifests/1":'
    " dial tcp: lookup registry.lab on 10.96.0.10:53: no such host"
)


@pytest.mark.parametrize(
    ("reason", "message", "short", "final"),
    [
        ("ErrImagePull", NOT_FOUND, "ErrImagePull: image docker.io/gpudask/dask:0.1.0: not found", True),
        (
            "ErrImagePull",
            DENIED,
            (
                "ErrImagePull: image docker.io/gpudask/dask:0.1.0: pull access denied, repository does not exist or may"
                " require authorization"
            ),
            True,
        ),
        ("ErrImagePull", NO_HOST, "ErrImagePull: image registry.lab:5000/me/dask:1: no such host", False),
        (
            "ImagePullBackOff",
            f'Back-off pulling image "docker.io/gpudask/dask:0.1.0": ErrImagePull: {NOT_FOUND}',
            "ImagePullBackOff: image docker.io/gpudask/dask:0.1.0: not found",
            True,
        ),
        ("ImagePullBackOff", 'Back-off pulling image "x:1"', "ImagePullBackOff: image x:1", False),
        ("ErrImagePull", "not found", "ErrImagePull: not found", True),
        ("ErrImagePull", "", "ErrImagePull", False),
        (
            "InvalidImageName",
            'couldn\'t parse image name "A b"',
            'InvalidImageName: couldn\'t parse image name "A b"',
            True,
        ),
        ("CrashLoopBackOff", "not found", "CrashLoopBackOff: not found", False),
    ],
)
def test_a_failed_pull_in_short(reason: str, message: str, short: str, final: bool):
    assert short_message(reason, message) == short
    assert is_final(reason, message) is final


def test_whatever_a_registry_says_stays_short_and_harmless():
    message = short_message("ErrImagePull", 'image "' + "x" * 500 + '": \x1b[31m' + "y: " * 100_000 + "z" * 5000)
    assert len(message) < 400
    assert "\x1b" not in message


@pytest.mark.parametrize("tag", ["401", "403", "404"])
def test_a_tag_that_is_a_number_makes_no_failure_final(tag: str):
    image = f"registry.example:5000/lab/dask:{tag}"
    said = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": dial tcp: i/o timeout'
    assert not is_final("ErrImagePull", said)
    assert is_final("ErrImagePull", said.replace("dial tcp: i/o timeout", "unexpected status: 403 Forbidden"))
