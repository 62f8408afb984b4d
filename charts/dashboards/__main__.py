"""Write the dashboards into the chart; `files()` is what a test compares them with."""

from __future__ import annotations

from pathlib import Path

from charts.dashboards import cluster, fleet, operator
from charts.dashboards.grafana import rendered

DIRECTORY = Path(__file__).resolve().parents[1] / "gpudask" / "files" / "dashboards"
DASHBOARDS = (fleet.DASHBOARD, cluster.DASHBOARD, operator.DASHBOARD)


def files() -> dict[Path, str]:
    """The text of each dashboard's file."""
    return {DIRECTORY / f"{dashboard.name}.json": rendered(dashboard) for dashboard in DASHBOARDS}


def main() -> None:
    """Bring the files up to date."""
    DIRECTORY.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
