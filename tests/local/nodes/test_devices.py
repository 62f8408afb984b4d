"""Real GPUs where the machine has some; what is pretended elsewhere stays as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from local.clusters.settings import Settings
from local.errors import LocalClusterError
from local.nodes import devices
from local.nodes.devices import count_gpus, device_plugin, driver_libraries, plugins_socket_blocker
from local.nodes.node_spec import node_specs


def test_gpus_are_counted_by_their_device_files(tmp_path: Path):
    for name in ("nvidia0", "nvidia1", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "null"):
        (tmp_path / name).touch()
    assert count_gpus(tmp_path) == 3


def test_a_machine_with_gpus_offers_them_on_one_node_for_all_pods():
    settings = Settings.for_machine(devices=4)
    assert (settings.nodes, settings.device_plugin) == (("gpu-0",), True)
    (spec,) = settings.specs
    assert (spec.device_plugin, spec.tainted) == (True, False)


def test_a_machine_without_gpus_pretends_some_on_a_tainted_node():
    settings = Settings.for_machine(devices=0)
    assert settings == Settings()
    assert [(spec.gpus, spec.tainted, spec.device_plugin) for spec in settings.specs] == [
        (0, False, False),
        (8, True, False),
    ]


def test_pretended_gpus_can_be_had_beside_real_ones():
    settings = Settings.for_machine(gpus=2, devices=4)
    assert (settings.gpus, settings.device_plugin, settings.nodes) == (2, False, ("cpu-0", "gpu-0"))


@pytest.mark.parametrize("nodes", [("cpu-0", "gpu-0"), ("cpu-0",)])
def test_real_gpus_go_to_one_node(nodes: tuple[str, ...]):
    with pytest.raises(LocalClusterError, match=r"one node named gpu\.\.\., not to cpu-0.*--nodes gpu-0, or --gpus 8"):
        Settings.for_machine(nodes, devices=1)


def test_a_node_is_tainted_only_where_pods_have_another_place():
    assert [spec.tainted for spec in node_specs(("gpu-0", "gpu-1"), 1)] == [False, False]


def test_a_kubelet_starts_after_the_one_before_it_listens_where_all_of_a_machine_do(tmp_path: Path):
    socket = tmp_path / "kubelet.sock"
    assert f"does not listen for device plugins yet at {socket}" in str(plugins_socket_blocker(100.0, socket))
    socket.touch()
    os.utime(socket, (99.0, 99.0))  # another kubelet's, or one's of an earlier start
    assert plugins_socket_blocker(100.0, socket) is not None
    os.utime(socket, (100.5, 100.5))
    assert plugins_socket_blocker(100.0, socket) is None


def test_missing_driver_libraries_are_named(tmp_path: Path):
    with pytest.raises(LocalClusterError, match=r"libnvidia-ml.so.1, the driver's library, is in none of .*--gpus 8"):
        driver_libraries([tmp_path])
    (tmp_path / "libnvidia-ml.so.1").touch()
    assert driver_libraries([tmp_path / "no", tmp_path]) == tmp_path


def test_the_device_plugin_hands_out_device_files(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(devices, "driver_libraries", lambda: Path("/driver"))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/more")
    assert device_plugin(Path("/plugin")).environment == {
        "PASS_DEVICE_SPECS": "true",
        "DEVICE_LIST_STRATEGY": "envvar",
        "LD_LIBRARY_PATH": "/driver:/more",
    }
