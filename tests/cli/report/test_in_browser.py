"""The page in a real browser: it loads nothing, says nothing, shows its charts, and runs nothing of a tenant's."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from PIL import Image

from gpudask.cli.commands.report import as_html
from gpudask.cli.cost.prices import Prices
from gpudask.cli.report.sections import Subject
from tests.browser import Browser, ensure_browser, started
from tests.cli.cost.builders import NOON
from tests.cli.report.builders import PRICES, a_days_record, a_hostile_record, of_record
from tests.conftest import ROOT

pytestmark = pytest.mark.browser
_SHAPES = """[...document.querySelectorAll('svg')].map(svg => ({
    label: svg.getAttribute('aria-label'),
    width: svg.getBoundingClientRect().width,
    height: svg.getBoundingClientRect().height,
    drawn: [...svg.querySelectorAll('path, rect')].some(each => each.getBoundingClientRect().width > 0
        && each.getBoundingClientRect().height > 0),
}))"""
# What is wider than the window, but for what scrolls by itself.
_TOO_WIDE = """[...document.querySelectorAll('body *')]
    .filter(each => !each.closest('.wide, svg') && each.getBoundingClientRect().right > innerWidth + 1)
    .map(each => each.outerHTML.slice(0, 200))"""
# Contrasts as WCAG counts them: of each text with what it stands on, 4.5 at least, and of each shape, 3 at least.
_PALE = """(() => {
    const light = colour => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(part => part / 255)
        .map(part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const ground = each => { for (let at = each; at; at = at.parentElement) {
        const colour = getComputedStyle(at).backgroundColor;
        if (!colour.startsWith('rgba(0, 0, 0, 0')) return colour; } return 'rgb(255, 255, 255)'; };
    const contrast = (one, other) => { const [a, b] = [light(one), light(other)].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05); };
    const texts = [...document.querySelectorAll('body *')].filter(each => !each.closest('svg')
        && [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
    const shapes = [...document.querySelectorAll('.bar rect, .plot path.line')];
    const colour = each => { const style = getComputedStyle(each);
        return each.matches('path') ? style.stroke : style.fill; };
    return texts.filter(each => contrast(getComputedStyle(each).color, ground(each)) < 4.5)
        .concat(shapes.filter(each => contrast(colour(each), ground(each.closest('section'))) < 3))
        .map(each => each.outerHTML.slice(0, 120));
})()"""


@pytest.fixture(scope="session", autouse=True)
def chromium() -> None:
    ensure_browser()


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    (folder := tmp_path / "browser").mkdir()
    async with started(folder) as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "demo.html"
    path.write_text(as_html(Subject(*of_record(a_days_record())), NOON, Prices.model_validate(PRICES)))
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 380])
async def test_it_is_whole_and_legible_on_any_screen(browser: Browser, file: Path, width: int, scheme: str):
    await browser.open(file, width=width, scheme=scheme)

    assert browser.told == []
    assert browser.requests == [file.as_uri()], "it loads nothing but itself"
    shapes = await browser.value(_SHAPES)
    assert len(shapes) >= 20
    assert [each for each in shapes if each["width"] < 100 or each["height"] < 10 or not each["drawn"]] == []
    assert await browser.value("[innerWidth, document.documentElement.scrollWidth]") == [width, width]
    assert await browser.value(_TOO_WIDE) == []
    assert await browser.value(_PALE) == []
    ground = await browser.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")
    assert (ground > 128) is (scheme == "light")


async def test_on_paper_it_is_light_with_every_log(browser: Browser, file: Path):
    await browser.open(file, width=1100, scheme="dark")
    await browser.call("Emulation.setEmulatedMedia", media="print")
    shown = await browser.value("[...document.querySelectorAll('pre')].map(e => e.getBoundingClientRect().height)")

    assert len(shown) == 3
    assert min(shown) > 10, "what is folded on a screen is unfolded on paper"
    assert await browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert (await browser.printed()).startswith(b"%PDF")


@pytest.fixture
def hostile(file: Path) -> Path:
    file.write_text(as_html(Subject(*of_record(a_hostile_record())), NOON))
    return file


@pytest.mark.parametrize("width", [1100, 380])
async def test_nothing_that_a_tenant_wrote_runs_or_loads(browser: Browser, hostile: Path, width: int):
    await browser.open(hostile, width=width)

    assert browser.told == []
    assert browser.requests == [hostile.as_uri()]
    assert await browser.value("document.querySelectorAll('script, img, iframe, object, link').length") == 0
    assert await browser.value("document.body.innerText.includes('<script>alert(1)</script>')") is True
    assert await browser.value("[innerWidth, document.documentElement.scrollWidth]") == [width, width]


@pytest.fixture
def with_script(file: Path) -> Path:
    file.write_text(file.read_text().replace("<main>", "<main><script>document.title = 'it ran'</script>"))
    return file


async def test_an_own_script_would_not_run_either(browser: Browser, with_script: Path):
    """The page's own policy, should a text ever get through unescaped."""
    await browser.open(with_script, width=1100)

    assert "Content Security Policy" in " ".join(browser.told)
    assert await browser.value("document.title") == "demo in lab: GPU report"


# What docs/cost.md shows: part of the page, its width in pixels, and its reader's liking.
PICTURES = {
    "report-light.png": ("header", "#ledger", 1000, "light"),
    "report-dark.png": ("#sizes", "#sizes", 1000, "dark"),
}


@pytest.mark.parametrize("name", PICTURES)
async def test_the_docs_have_pictures_of_it(browser: Browser, file: Path, name: str, *, update_golden: bool):
    """Browsers draw letters differently, so that no pixel is compared: whoever changes the page makes them anew."""
    first, last, width, scheme = PICTURES[name]
    await browser.open(file, width=width, scheme=scheme)
    drawn = Image.open(io.BytesIO(await browser.picture(first, last)))
    if update_golden:
        drawn.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            ROOT / "docs" / name, optimize=True
        )
    kept = Image.open(ROOT / "docs" / name)

    assert kept.width == width
    assert abs(kept.height - drawn.height) < 0.1 * drawn.height, "it looks different by now: --update-golden"


def test_the_pictures_are_small():
    assert sum((ROOT / "docs" / name).stat().st_size for name in PICTURES) < 150_000
