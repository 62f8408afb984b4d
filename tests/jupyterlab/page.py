"""JupyterLab's page in a browser, with the panel of Dask's extension, as its user reads and clicks it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.browser import Browser
from tests.eventually import eventually_async
from tests.jupyterlab.server import Lab

_TAB = '[data-id="dask-dashboard-launcher"]'
_NEW = '.dask-DaskClusterManager [data-command="dask:launch-cluster"]'
_CLUSTER = ".dask-ClusterListingItem"
_OK = ".jp-Dialog .jp-mod-accept"
_SECONDS = 120
# What a pane of the dashboard has drawn: Bokeh's elements are each in a shadow of their own.
_DRAWN = """(frame => { const view = frame?.contentWindow; const found = [];
    const look = root => { for (const each of root.querySelectorAll('*')) {
        if (each.tagName === 'CANVAS') found.push(each);
        if (each.shadowRoot) look(each.shadowRoot); } };
    if (view?.document?.body) look(view.document);
    return {canvases: found.length, models: (view?.Bokeh?.documents || []).map(each => each.title()),
        text: view?.document?.body?.innerText || '', address: view?.location.pathname || ''};
})(document.querySelector('.jp-MainAreaWidget:not(.lm-mod-hidden) iframe, .lm-DockPanel iframe'))"""


@dataclass(frozen=True)
class LabPage:
    """The page of one server."""

    browser: Browser
    lab: Lab

    async def open(self) -> None:
        """Load it, with the panel of Dask's extension in the side bar."""
        await self.browser.open(self.lab.page, width=1280, height=800)
        await self._until("!!document.querySelector('.jp-LauncherCard')", "the page, which arranges itself first")
        await self._click(_TAB)
        await self._until(_seen(_NEW), "the extension's panel")

    async def clusters(self) -> list[str]:
        """The text of each cluster in the panel."""
        found: list[str] = await self.browser.value(
            f"[...document.querySelectorAll('{_CLUSTER}')].map(each => each.innerText)"
        )
        return found

    async def shows(self, text: str, *, number: int = 1) -> None:
        """Wait until so many clusters are listed, and the last has this text."""

        def accepted(found: list[str]) -> bool:
            return len(found) == number and (number == 0 or text in found[-1])

        await eventually_async(self.clusters, accepted, f"{number} clusters, the last with {text!r}", _SECONDS)

    async def new_cluster(self) -> None:
        """Click on NEW."""
        await self._click(_NEW)

    async def scale(self, workers: int) -> None:
        """Set the only cluster's number of workers in its dialog."""
        await self._press(f"{_CLUSTER}-scale")
        await self._fill(0, workers)
        await self._press(_OK)

    async def adapt(self, minimum: int, maximum: int) -> bytes:
        """Let the only cluster follow demand; a picture of the dialog, as PNG."""
        await self._press(f"{_CLUSTER}-scale")
        await self._press(".dask-ScalingCheckbox")
        await self._fill(2, maximum)
        await self._fill(1, minimum)
        picture = await self.browser.screen()
        await self._press(_OK)
        return picture

    async def shut_down(self) -> None:
        """Click on SHUTDOWN of the only cluster."""
        await self._press(f"{_CLUSTER}-stop")

    async def open_plot(self, name: str) -> None:
        """Open a plot of the active cluster's dashboard in the main area, once the extension has found it."""
        await self._press(f'.dask-DashboardListing-item button[value="{name}"]')

    async def pane(self) -> dict[str, Any]:
        """What the open plot shows, once it has drawn something."""
        return await eventually_async(
            lambda: self.browser.value(_DRAWN), lambda pane: pane["canvases"] > 0, "a drawn plot", _SECONDS
        )

    async def open_notebook(self, path: str) -> None:
        """Open a notebook of the server's folder, and wait until its kernel can run cells."""
        await self._command("docmanager:open", path=path)
        kernel = "window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status"
        await self._until(f"{kernel} === 'idle'", "the notebook's kernel")

    async def run_next_cell(self) -> None:
        """Run the chosen cell, which chooses the next; its end is not waited for."""
        await self._command("notebook:run-cell-and-select-next")

    async def interrupt(self) -> None:
        """Press the notebook's button that interrupts its kernel."""
        await self._click('.jp-NotebookPanel-toolbar [data-command="notebook:interrupt-kernel"]')

    async def output(self, cell: int) -> str:
        """The text below a cell, as it stands."""
        return str(await self.browser.value(f"{_cell(cell)}?.querySelector('.jp-OutputArea')?.innerText || ''"))

    async def prints(self, cell: int, text: str) -> str:
        """Wait until a cell has ended and shows this text below it; all that it shows."""
        ended = f"/\\[\\d+\\]/.test({_cell(cell)}?.querySelector('.jp-InputPrompt')?.innerText || '')"

        async def found() -> str:
            return await self.output(cell) if await self.browser.value(ended) else ""

        return await eventually_async(found, lambda shown: text in shown, f"{text!r} below cell {cell}", _SECONDS)

    async def prints_soon(self, cell: int, text: str) -> None:
        """Wait until a cell, which may still run, shows this text below it."""
        await eventually_async(
            lambda: self.output(cell), lambda shown: text in shown, f"{text!r} below cell {cell}", _SECONDS
        )

    async def has_widget(self, cell: int) -> None:
        """Wait until a cell shows a widget of ipywidgets with tabs."""
        await self._until(f"!!{_cell(cell)}?.querySelector('.jupyter-widgets.widget-tab')", f"a widget of cell {cell}")

    async def _command(self, name: str, **arguments: Any) -> None:
        given = json.dumps(arguments)
        await self.browser.value(f"void window.jupyterapp.commands.execute({json.dumps(name)}, {given})")

    async def error(self) -> str:
        """The text of the dialog that says what did not work, which is closed then."""
        await self._until("!!document.querySelector('.jp-Dialog')", "a dialog")
        text = str(await self.browser.value("document.querySelector('.jp-Dialog').innerText"))
        await self._press(".jp-Dialog .jp-Dialog-button")
        return text

    async def _fill(self, number: int, value: int) -> None:
        """Write into one of the dialog's fields."""
        field = f"document.querySelectorAll('.jp-Dialog .dask-ScalingInput')[{number}]"
        await self._until(f"{field} && !{field}.disabled", f"field {number} of the dialog")
        await self.browser.value(f"{field}.focus(), {field}.select()")
        await self.browser.type(str(value))
        await self._until(f"{field}.value === '{value}'", f"{value} in field {number}")

    async def _click(self, selector: str) -> None:
        await self._until(_seen(selector), selector)
        await self.browser.click(selector)

    async def _press(self, selector: str) -> None:
        """Click on what may be drawn anew, or moved, between the search for it and a mouse's click."""
        await self._until(_seen(selector), selector)
        await self.browser.value(f"document.querySelector({json.dumps(selector)}).click()")

    async def _until(self, expression: str, what: str) -> None:
        await eventually_async(lambda: self.browser.value(expression), bool, what, _SECONDS)


def _seen(selector: str) -> str:
    """JavaScript that tells whether there is such an element to be seen."""
    return f"(found => !!found && !!found.offsetParent)(document.querySelector({json.dumps(selector)}))"


def _cell(number: int) -> str:
    return f"document.querySelectorAll('.jp-Notebook .jp-Cell')[{number}]"
