"""The extension's panel in a real browser: a cluster from the first click to the last, and plots of its dashboard."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator

import pytest
from PIL import Image

from local.layout import REPOSITORY
from tests.browser import Browser
from tests.eventually import eventually
from tests.jupyterlab.conftest import Platform
from tests.jupyterlab.page import LabPage
from tests.jupyterlab.server import Lab

pytestmark = [pytest.mark.registry, pytest.mark.dask, pytest.mark.browser, pytest.mark.timeout(600)]
PICTURES = ("jupyterlab-clusters.png", "jupyterlab-dashboard.png")


@pytest.fixture
async def page(browser: Browser, one_lab: Lab) -> AsyncIterator[LabPage]:
    opened = LabPage(browser, one_lab)
    await opened.open()
    yield opened
    for model in one_lab.ask("GET", "dask/clusters"):
        one_lab.ask("DELETE", f"dask/clusters/{model['id']}")


async def test_a_cluster_is_made_scaled_watched_and_shut_down(
    page: LabPage, platform: Platform, *, update_golden: bool
):
    assert await page.clusters() == []

    await page.new_cluster()
    await page.shows("Number of Workers: 1\n")
    (listed,) = await page.clusters()
    assert "Memory: 1.00 GiB" in listed
    assert "Number of Cores: 1" in listed
    assert "Scheduler Address: tcp://127.0.0.1:" in listed
    assert "/status" in listed
    (body,) = platform.server.clusters.values()
    assert [pool["name"] for pool in body["spec"]["pools"]] == ["cpu", "gpu"]

    await page.scale(3)
    await page.shows("Number of Workers: 3\n")
    assert platform.override("cpu") == {"replicas": 3}

    clusters = await page.adapt(2, 5)
    await page.shows("Minimum Workers: 2")
    await page.shows("Maximum Workers: 5")
    eventually(lambda: platform.override("cpu") == {"min": 2, "max": 5}, "what the sliders set")
    await page.shows("Number of Workers: 2\n")

    await page.open_plot("Workers Memory")
    pane = await page.pane()
    assert pane["address"].startswith("/dask/dashboard/"), "through the server, whose user needs no other address"
    dashboard = await page.browser.screen()

    await page.shut_down()
    await page.shows("", number=0)
    assert platform.names == []
    for name, picture in zip(PICTURES, (clusters, dashboard), strict=True):
        compare(name, picture, update_golden=update_golden)


def compare(name: str, picture: bytes, *, update_golden: bool) -> None:
    """Browsers draw letters differently, so that no pixel is compared: whoever changes the page makes them anew."""
    drawn = Image.open(io.BytesIO(picture)).convert("RGB")
    path = REPOSITORY / "docs" / name
    if update_golden:
        drawn.quantize(64, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    assert Image.open(path).size == drawn.size, "it looks different by now: --update-golden"


def test_the_pictures_are_small():
    assert sum((REPOSITORY / "docs" / name).stat().st_size for name in PICTURES) < 150_000


async def test_why_no_cluster_is_made_is_in_a_dialog(page: LabPage, platform: Platform):
    platform.server.forbidden.add("POST gpudaskclusters")

    await page.new_cluster()

    said = await page.error()
    assert "Cluster Start Error" in said
    assert "cannot POST gpudaskclusters" in said
    assert await page.clusters() == []
