"""Dask's JupyterLab extension on the real cluster: by its real server, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import ensure_browser, started
from tests.e2e.kubeconfigs import write_kubeconfig
from tests.e2e.programs import IMAGE
from tests.e2e.space import Space
from tests.jupyterlab.page import LabPage
from tests.jupyterlab.server import lab

_FACTORY = f"""
labextension:
  factory:
    module: gpudask
    class: KubeCluster
    kwargs:
      image: {IMAGE}
      name: from-the-lab
      n_workers: 1
      resources: {{cpu: 200m, memory: 512Mi}}
"""


@pytest.mark.registry
@pytest.mark.browser
async def test_a_cluster_of_the_extension_is_made_scaled_watched_and_shut_down(space: Space, tmp_path: Path) -> None:
    ensure_browser()
    write_kubeconfig(space, tmp_path / "kubeconfig")
    (tmp_path / "browser").mkdir()
    with lab(tmp_path / "lab", tmp_path / "kubeconfig", _FACTORY) as running:
        async with started(tmp_path / "browser") as browser:
            page = LabPage(browser, running)
            await page.open()

            await page.new_cluster()
            await page.shows("Number of Workers: 1\n")
            await page.scale(2)
            await page.shows("Number of Workers: 2\n")
            assert len(space.pods("from-the-lab", "cpu")) == 2

            await page.open_plot("Workers Memory")
            assert (await page.pane())["address"].startswith("/dask/dashboard/")

            await page.shut_down()
            await page.shows("", number=0)
    space.wait(lambda: not space.get("gdc"), "the cluster is gone")
