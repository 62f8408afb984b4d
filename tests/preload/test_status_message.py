"""What is said of a worker that is to leave and has not closed itself to new tasks yet."""

import pytest
from distributed.core import Status

from gpudask.preload.drains.drain import status_message


@pytest.mark.parametrize("status", Status)
def test_no_word_of_distributeds_reaches_people(status: Status):
    message = status_message(status.name)

    assert message.startswith("the worker ")
    assert not {"init", "undefined", "closing_gracefully", "dont_reply"} & set(message.split())


@pytest.mark.parametrize(
    ("status", "message"),
    [("init", "the worker has not finished starting"), ("paused", "the worker is paused: its memory is nearly full")],
)
def test_it_is_told_in_plain_words(status: str, message: str):
    assert status_message(status) == message
