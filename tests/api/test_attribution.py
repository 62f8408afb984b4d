"""Attribution: names are checked where the operator starts, values are a tenant's."""

from __future__ import annotations

import pytest

from gpudask.api import attribution


def test_names_of_labels_and_annotations_are_read():
    assert attribution.parse(" team, example.com/cost-center ,") == ("team", "example.com/cost-center")
    assert attribution.parse("") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("team a", "expected the name of a label"),
        ("-team", "expected the name of a label"),
        ("Example.com/team", "expected the name of a label"),
        ("team\n", None),
        ("a/b/c", "expected the name of a label"),
        ("x" * 64, "expected the name of a label"),
        ("a.b,a-b", "a.b and a-b would both be the metrics' label label_a_b"),
        ("team,team", "team and team would both be"),
        (",".join(f"n{number}" for number in range(9)), "expected at most 8 names, got 9"),
    ],
)
def test_what_cannot_be_labels_of_a_metric_is_refused(text: str, words: str | None):
    if words is None:
        assert attribution.parse(text)
        return
    with pytest.raises(ValueError, match=r"expected|would both") as error:
        attribution.parse(text)
    assert words in str(error.value)


def test_a_label_wins_over_an_annotation_and_what_is_missing_is_empty():
    metadata = {"labels": {"team": "a"}, "annotations": {"team": "b", "project": "p"}}
    assert attribution.read(metadata, ("team", "project", "user")) == {"team": "a", "project": "p", "user": ""}


@pytest.mark.parametrize("metadata", [{}, {"labels": None}, {"labels": [1]}, {"annotations": {"team": 3}}])
def test_reading_is_total(metadata: dict[str, object]):
    assert attribution.read(metadata, ("team",)) == {"team": ""}


def test_a_value_is_short_and_on_one_line():
    hostile = "\x1b[31mred\x1b[0m\nsecond\u202e line " + "x" * 1000
    value = attribution.read({"annotations": {"team": hostile}}, ("team",))["team"]
    assert len(value) <= attribution.VALUE_LENGTH
    assert value.isprintable()
    assert value.startswith("red second")
