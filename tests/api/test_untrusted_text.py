"""What others wrote is shown in one clean, short line."""

from __future__ import annotations

import logging
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.api.untrusted_text import QUOTE_LENGTH, quote, quote_last_line, quote_name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("task load-12 and 3 more", "task load-12 and 3 more"),
        ("Überlauf: 5 µs, 日本", "Überlauf: 5 µs, 日本"),
        ("one\ntwo\r\nthree\u2028four\x85five\x1csix", "one two three four five six"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07said", "said"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("a\x00b\x7f", "a\ufffdb\ufffd"),
        ("abc\u202edef\u2066", "abc\ufffddef\ufffd"),
        ("a\ud800b", "a\ufffdb"),
        ("  \t ", ""),
        ("o" + "\u0301" * 50, "o\u0301\u0301"),
    ],
)
def test_a_quote_is_one_clean_line(text: str, shown: str):
    assert quote(text) == shown


@given(st.text(alphabet=st.characters(), max_size=600))
def test_no_text_breaks_a_line_or_hides(text: str):
    shown = quote(text)
    assert len(shown) <= QUOTE_LENGTH
    assert len(shown.splitlines()) <= 1
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    shown.encode()  # a log or a status can hold it


def test_what_is_longer_is_cut_and_says_so():
    assert quote("x" * 300) == "x" * 199 + "…"
    assert quote("x" * 200) == "x" * 200
    assert quote(" " * 100_000 + "x") == "…", "whatever is beyond what is looked at, it was longer"


def test_a_long_text_costs_no_more_than_its_beginning():
    began = time.process_time()
    quote("\x1b]" * 2_000_000)
    quote("\u202e" * 2_000_000)
    quote_last_line("\u202e\n" * 2_000_000)
    assert time.process_time() - began < 0.5


def test_of_a_traceback_the_last_line_is_quoted():
    assert quote_last_line("Traceback:\n  File x\nValueError: no\n\n") == "ValueError: no"
    assert quote_last_line("\n \n") == ""


def test_a_name_that_is_not_clean_is_never_taken_for_a_clean_one():
    assert quote_name("GPU") == "GPU"
    for name in ("GPU\u200b", "GPU\n", " GPU", "\x1b[31mGPU", "G" * 300):
        shown = quote_name(name)
        assert shown == quote(shown)
        assert shown not in ("GPU", "G" * 200)


@pytest.mark.parametrize(
    "names",
    [
        ("G" * 300 + "a", "G" * 300 + "b"),
        ("G" * 200, "G" * 201, "G" * 202),
        ("GPU\u200b", "'GPU\\u200b'"),
        ("a  b", "a   b", "a b", " a b"),
        ("\u00e9" * 60, "\u00e9" * 61),
    ],
    ids=["cut", "cut by a little", "as if it were escaped", "with blanks", "longer when escaped"],
)
def test_different_names_stay_different(names: tuple[str, ...]):
    shown = {quote_name(name) for name in names}
    assert len(shown) == len(names)
    assert all(len(name) <= QUOTE_LENGTH and name == quote(name) for name in shown)


@given(st.lists(st.text(" a'\u200b", max_size=34), max_size=30, unique=True))
def test_no_two_names_meet(names: list[str]):
    shown = {quote_name(name, 30) for name in names}
    assert len(shown) == len(names)
    assert all(len(name) <= 30 for name in shown)


def test_a_forged_line_reaches_no_plain_log(caplog: pytest.LogCaptureFixture):
    logging.getLogger("gpudask.test").warning("demo: %s", quote("busy\n2026-01-01 INFO all is well"))
    assert caplog.messages == ["demo: busy 2026-01-01 INFO all is well"]
