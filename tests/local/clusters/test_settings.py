"""What `up` was asked for, as other commands read it, also those of another version."""

from __future__ import annotations

import json
from pathlib import Path

from local.clusters.settings import Settings
from local.layout import Layout


def test_settings_come_back_as_they_were_written(tmp_path: Path):
    layout = Layout(tmp_path)
    settings = Settings(nodes=("cpu-0",), gpus=2, audit=True)
    settings.write(layout)
    assert Settings.read(layout) == settings


def test_gpus_are_pretended_on_nodes_that_have_some_unless_they_are_the_machines():
    assert Settings().pretends_gpus
    assert not Settings(nodes=("cpu-0",)).pretends_gpus
    assert not Settings(nodes=("gpu-0",), device_plugin=True).pretends_gpus


def test_what_another_version_wrote_can_be_read(tmp_path: Path):
    layout = Layout(tmp_path)
    layout.settings.write_text(json.dumps({"nodes": ["cpu-0", "gpu-0"], "gpus": 5, "unheard_of": True}))
    assert Settings.read(layout) == Settings(nodes=("cpu-0", "gpu-0"), gpus=5)
