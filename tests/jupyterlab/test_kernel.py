"""KubeCluster in the cells of a notebook, in a real JupyterLab: the widget, the button that interrupts, `%%gpudask`."""

from __future__ import annotations

import json

import pytest

from tests.browser import Browser
from tests.eventually import eventually
from tests.jupyterlab.conftest import Platform
from tests.jupyterlab.page import LabPage
from tests.jupyterlab.server import Lab

pytestmark = [pytest.mark.registry, pytest.mark.dask, pytest.mark.browser, pytest.mark.timeout(600)]
CELLS = [
    """from gpudask import KubeCluster
cluster = KubeCluster('mine', image='i', n_workers=1, gpus=(1, 2), quiet=True)
cluster.wait_for_workers(2)
cluster""",
    "print('it waits')\ncluster.wait_for_workers(9)",
    "from dask.distributed import Client\nclient = Client(cluster)\nclient.submit(sum, [20, 22]).result()",
    "%load_ext gpudask",
    "%%gpudask\nfrom distributed import get_worker\nhere = str(get_worker().name)\nhere",
    "f'{here} came back'",
    "%unload_ext gpudask\nclient.close()\ncluster.close()\ncluster.status",
]


def notebook(*cells: str) -> str:
    """A notebook's file."""
    made = [
        {
            "cell_type": "code",
            "id": f"c{number}",
            "metadata": {},
            "outputs": [],
            "execution_count": None,
            "source": cell,
        }
        for number, cell in enumerate(cells)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})


async def test_a_notebook_shows_its_cluster_interrupts_a_wait_and_computes(
    browser: Browser, one_lab: Lab, platform: Platform
):
    (one_lab.folder / "work" / "cells.ipynb").write_text(notebook(*CELLS))
    page = LabPage(browser, one_lab)
    await page.open()
    await page.open_notebook("cells.ipynb")

    await page.run_next_cell()
    await page.has_widget(0)
    shown = await page.prints(0, "mine")
    assert "1 worker, 1 pod" in shown, "the pool's own row"
    assert platform.names == ["mine"]

    await page.run_next_cell()
    await page.prints_soon(1, "it waits")
    await page.interrupt()
    await page.prints(1, "KeyboardInterrupt")
    assert platform.names == ["mine"], "it goes on"

    await page.run_next_cell()
    await page.prints(2, "42")

    await page.run_next_cell()
    await page.run_next_cell()
    assert "mine-gpu-worker-0" in await page.prints(4, "mine-gpu-worker-0")
    await page.run_next_cell()
    await page.prints(5, "came back")

    await page.run_next_cell()
    await page.prints(6, "closed")
    eventually(lambda: platform.names == [], "it is deleted")
