"""Settings are read once; the error for an invalid one names it and what it expects."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

from gpudask.api.base import DURATION_ADVICE
from gpudask.api.limits import Limits
from gpudask.settings import HistorySettings, Settings, SettingsError, read


def test_nothing_set_is_the_default():
    assert read({}) == Settings(version=metadata.version("gpudask"))


def test_each_setting_is_read():
    found = read(
        {
            "GPUDASK_NAMESPACE": "ops",
            "GPUDASK_WATCH_NAMESPACES": " a, b,,",
            "GPUDASK_KEY_SECRET": "k",
            "GPUDASK_LOG_LEVEL": "debug",
            "GPUDASK_LOG_FORMAT": "JSON",
            "GPUDASK_HEALTH_PORT": "9000",
            "GPUDASK_MIRROR": "true",
            "GPUDASK_LEASE": "ours",
            "GPUDASK_IDENTITY": "pod_uid",
            "GPUDASK_NETWORK_POLICIES": "false",
            "GPUDASK_LIMITS": '{"podsPerCluster": 7}',
            "GPUDASK_DEFAULT_IMAGE": " dask:1 ",
            "GPUDASK_METRICS_PORT": "9090",
            "GPUDASK_METRICS_TLS": "/tls",
            "GPUDASK_METRICS_TOKEN": "/token",
            "GPUDASK_ATTRIBUTION": "team, example.com/project",
            "GPUDASK_HISTORY": '{"enabled": false, "keep": "2d", "perNamespace": 3}',
            "GPUDASK_VERSION": "1.2.3",
            "KUBECONFIG": "/k",
        }
    )
    named = {"lease": "ours", "identity": "pod_uid", "network_policies": False, "limits": Limits(pods_per_cluster=7)}
    named |= {"default_image": "dask:1", "metrics_port": 9090, "metrics_tls": "/tls", "metrics_token": "/token"}
    named |= {"attribution": ("team", "example.com/project")}
    named |= {"version": "1.2.3", "history": HistorySettings(enabled=False, keep="2d", per_namespace=3)}
    assert found.history.keep_seconds == 2 * 86400
    assert found == Settings("ops", ("a", "b"), "k", "DEBUG", "json", 9000, "/k", mirror=True, **named)


def test_an_image_without_the_package_does_not_know_its_version(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)

    assert read({}).version == "unknown"


HISTORY = "expected the chart's history as JSON"
AT_LEAST_1 = "Input should be greater than or equal to 1"
LIMITS = "expected the chart's limits as JSON"
IMAGE = "expected an image of at most 512 characters, such as registry.example/dask:1"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("GPUDASK_LOG_LEVEL", "loud", "expected one of DEBUG, INFO, WARNING, ERROR, got 'loud'"),
        ("GPUDASK_LOG_FORMAT", "xml", "expected one of plain, json, got 'xml'"),
        ("GPUDASK_NETWORK_POLICIES", "off", "expected one of true, false, got 'off'"),
        ("GPUDASK_HISTORY", "on", f"{HISTORY}: Expecting value: line 1 column 1 (char 0)"),
        (
            "GPUDASK_HISTORY",
            '{"keep": "long"}',
            f"{HISTORY}: keep: Value error, 'long' is not a duration: {DURATION_ADVICE}",
        ),
        ("GPUDASK_HISTORY", '{"keeps": "7d"}', f"{HISTORY}: keeps: Extra inputs are not permitted"),
        ("GPUDASK_HISTORY", '{"perNamespace": 0}', f"{HISTORY}: perNamespace: {AT_LEAST_1}"),
        ("GPUDASK_LIMITS", "7 pods", f"{LIMITS}: Extra data: line 1 column 3 (char 2)"),
        (
            "GPUDASK_LIMITS",
            '{"gpus": 0}',
            f"{LIMITS}: gpus: Extra inputs are not permitted",
        ),
        ("GPUDASK_DEFAULT_IMAGE", "dask: 1", f"{IMAGE}, got 'dask: 1'"),
        ("GPUDASK_DEFAULT_IMAGE", "d" * 513, f"{IMAGE}, got '{'d' * 80}'"),
        ("GPUDASK_MIRROR", "yes", "expected one of true, false, got 'yes'"),
        ("GPUDASK_HEALTH_PORT", "http", "expected a port number, got 'http'"),
        ("GPUDASK_METRICS_PORT", "99999", "expected a port number, got '99999'"),
        (
            "GPUDASK_ATTRIBUTION",
            "a.b,a-b",
            "a.b and a-b would both be the metrics' label label_a_b: leave one out, or rename it",
        ),
        ("GPUDASK_HEALTH_PORT", "-1", "expected a port number, got '-1'"),
        ("GPUDASK_HEALTH_PORT", "70000", "expected a port number, got '70000'"),
    ],
)
def test_a_wrong_value_names_its_variable(name: str, value: str, words: str):
    with pytest.raises(SettingsError) as caught:
        read({name: value})
    assert str(caught.value) == f"{name}: {words}"


@pytest.mark.program
def test_the_program_says_it_and_ends():
    done = subprocess.run(
        [sys.executable, "-m", "gpudask"],
        env={"GPUDASK_LOG_LEVEL": "loud"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (
        2,
        "GPUDASK_LOG_LEVEL: expected one of DEBUG, INFO, WARNING, ERROR, got 'loud'",
    )
