"""examples/quickstart.ipynb, run from its first cell to its last as a data scientist does, on the real cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.pages import ROOT
from tests.e2e.newcomer import Newcomer
from tests.e2e.manifests import IDLE_TIMEOUT
from tests.e2e.programs import IMAGE
from tests.e2e.space import Space
from tests.e2e.stand_in_gpus import stand_in_gpus

NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"
_CELL_SECONDS = 120


def text_of(notebook: Any, cell: str) -> str:
    """What a cell shows: what it printed, and its value as HTML or text."""
    (found,) = [item for item in notebook.cells if item.id == cell]
    shown = [output.get("text", "") for output in found.outputs]
    for output in found.outputs:
        data = output.get("data", {})
        shown.append(data.get("text/html", data.get("text/plain", "")))
    return "\n".join(shown)


@pytest.mark.local_cluster("its GPUs are pretended by an admission policy that not every Kubernetes has")
def test_the_notebook_runs_from_a_new_cluster_to_none(
    space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newcomer = Newcomer.arrive(space, tmp_path, {})
    monkeypatch.setenv("KUBECONFIG", str(newcomer.kubeconfig))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))  # nobody's own settings
    monkeypatch.setenv("DASK_GPUDASK__IMAGE", IMAGE)  # as an administrator sets it for everybody
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (waits,) = [cell for cell in notebook.cells if cell.id == "waits"]
    assert "timeout=5)" in waits.source
    waits.source = waits.source.replace("timeout=5)", "timeout=30)")  # other tests run beside this one

    def idle_pods_leave_sooner(cell: Any, **_: Any) -> None:
        if cell.id == "create":  # nobody should wait a minute for it here
            (body,) = space.get("gdc")
            gpu = [pool["name"] for pool in body["spec"]["pools"]].index("gpu")
            change = {"op": "add", "path": f"/spec/pools/{gpu}/autoscale/idleTimeout", "value": IDLE_TIMEOUT}
            space.edit(body["metadata"]["name"], change)

    runner = NotebookClient(
        notebook,
        timeout=_CELL_SECONDS,
        resources={"metadata": {"path": str(tmp_path)}},
        on_cell_executed=idle_pods_leave_sooner,
    )
    with stand_in_gpus(space.platform, space):
        runner.execute()

    assert "pools cpu (1 pods), gpu (0 to 2 pods of 1 GPU)" in text_of(notebook, "create")
    pools = text_of(notebook, "pools")
    assert "<strong>gpu</strong>" in pools
    assert "0 workers, 0 to 2 pods, 1 GPU a pod" in pools, pools
    assert "328350" in text_of(notebook, "cpu-work")
    gpu_work = text_of(notebook, "gpu-work")
    assert gpu_work.count("-gpu-worker-") == 4, gpu_work
    assert "-cpu-worker-" not in gpu_work
    assert "the GPU pool is empty" in text_of(notebook, "gone")
    assert "Insufficient memory" in text_of(notebook, "waits")
    space.wait(lambda: not space.get("gdc"), "the notebook's cluster is gone")
