"""The page as HTML: the template filled with its sections, every text of which is escaped by jinja2."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from gpudask.cli.cost.causes import CAUSES
from gpudask.cli.report.sections import Page
from gpudask.cli.report.wording import stamp


def render(page: Page, made: float, version: str) -> str:
    """The page as one file that loads nothing else.

    Args:
        page: what it says.
        made: when, in seconds since 1970.
        version: this program's.
    """
    return _template().render(page=page, made=stamp(made), version=version, stamp=stamp, causes=list(CAUSES))


@cache
def _template() -> Template:
    """The template, compiled once: that takes far longer than to fill it."""
    # No name of the template's could be forgotten, and none of a tenant's texts be taken for markup.
    environment = Environment(
        loader=PackageLoader("gpudask.cli.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html")
