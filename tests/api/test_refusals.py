"""Invalid manifests are refused, by the API server and by the operator, with words that say what to write."""

from __future__ import annotations

import re

import pytest

from local.clusters.api_server import ApiServer
from tests.api.refusals import ACCEPTS, Refusal, all_refusals, operator_words, server_words

REFUSALS = pytest.mark.parametrize("refusal", all_refusals(), ids=lambda refusal: refusal.path.stem)

# Faults of types alone, which cannot have been stored: the operator reads the value that was meant.
MEANT = {"pool-replicas-as-string", "quantity-as-fraction", "suspend-as-string"}
# Fields that the schema drops: the operator never sees them. Strict validation, as kubectl asks for it, names them.
UNKNOWN = {
    "cron-job-unknown-field",
    "gpu-options-on-cpu-pool",
    "job-unknown-field",
    "unknown-field-in-pool",
    "unknown-field-in-scheduler",
    "unknown-field-in-spec",
}

# Keys that the operator leaves out of what it makes, and says so: a pod of an older CRD's time must not stand still.
LEFT_OUT = {
    "cron-job-template-own-label",
    "job-own-label",
    "service-own-annotation",
    "template-label-of-dask",
    "template-own-annotation",
    "template-own-label",
}


def test_there_are_enough_of_them():
    assert len(all_refusals()) >= 30


@REFUSALS
def test_the_operator_refuses(refusal: Refusal, update_golden: bool):
    words = operator_words(refusal.manifest)
    if update_golden:
        refusal.write(operator=words)
    else:
        assert words == refusal.operator, "--update-golden writes the new words into the file"
    assert (words == [ACCEPTS]) == (refusal.path.stem in MEANT | UNKNOWN | LEFT_OUT)


@pytest.mark.api
@REFUSALS
@pytest.mark.usefixtures("with_crd")
def test_the_api_server_refuses(api_server: ApiServer, refusal: Refusal, update_golden: bool):
    words = server_words(api_server.api, refusal.manifest)
    if update_golden:
        refusal.write(server=words)
    else:
        assert words == refusal.server, "--update-golden writes the new words into the file"


@REFUSALS
def test_the_words_help(refusal: Refusal):
    for line in refusal.server:
        assert re.search(r"\b(spec|metadata)\b", line), f"names no field: {line}"
        assert "should match" not in line, f"a pattern is no advice: {line}"
        assert "cost" not in line, f"the rule is at fault, not the manifest: {line}"
    for line in refusal.operator:
        assert line == ACCEPTS or line.startswith(("spec", "metadata")), f"names no field: {line}"
        assert "instance of" not in line, f"Python's words: {line}"
