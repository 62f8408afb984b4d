"""What containers leave outside their node's directories is removed by their ids, and nobody else's with it."""

from __future__ import annotations

from pathlib import Path

from local.layout import NodeLayout
from local.nodes.containerd import container_ids, remove_files_of

OURS, OTHERS = "a1", "b2"


def test_the_started_containers_are_those_with_a_task(tmp_path: Path):
    assert container_ids(NodeLayout(tmp_path)) == set()
    (tmp_path / "state" / "io.containerd.runtime.v2.task" / "k8s.io" / OURS).mkdir(parents=True)
    assert container_ids(NodeLayout(tmp_path)) == {OURS}


def test_only_our_containers_traces_are_removed(tmp_path: Path):
    run, results = tmp_path / "run", tmp_path / "results"
    for container in (OURS, OTHERS):
        (run / "runc" / "k8s.io" / container).mkdir(parents=True)
        (run / "runc" / "k8s.io" / container / "state.json").touch()
    results.mkdir()
    for name in ("gpudask-cpu-0-a1-eth0", "cni-loopback-a1-lo", "cni-loopback-b2-lo", "podman-b2-eth0"):
        (results / name).touch()

    remove_files_of(NodeLayout(tmp_path / "node"), [OURS], runtime=run, results=results)

    assert [path.name for path in (run / "runc" / "k8s.io").iterdir()] == [OTHERS]
    assert {path.name for path in results.iterdir()} == {"cni-loopback-b2-lo", "podman-b2-eth0"}
