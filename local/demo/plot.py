"""The plot of a recording: pool sizes above, demand for GPUs below."""

from __future__ import annotations

from pathlib import Path

from local.demo.model import PoolView, View


def draw(view: View, end: float, gpu_pools: list[str], path: Path) -> None:
    """Write a PNG to `path`; `end` is the recording's last second."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - takes longer than all the rest, and a plot alone needs it

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    sizes, demand = figure.subplots(2, 1, sharex=True)
    for number, name in enumerate(pool.name for pool in view.pools):
        color = f"C{number}"
        seconds, pools = _series(view, name, end)
        sizes.fill_between(seconds, [pool.ready for pool in pools], step="post", color=color, alpha=0.25)
        sizes.step(seconds, [pool.ready for pool in pools], where="post", color=color, label=f"{name}: ready")
        desired = [pool.desired for pool in pools]
        sizes.step(seconds, desired, where="post", color=color, linestyle="--", linewidth=1, label=f"{name}: desired")
    for name in gpu_pools:
        seconds, pools = _series(view, name, end)
        demand.step(seconds, [pool.waiting for pool in pools], where="post", color="C3", label=f"{name}: waiting")
        demand.step(seconds, [pool.running for pool in pools], where="post", color="C2", label=f"{name}: running")
    sizes.set(ylabel="pods", title="Pool sizes (watch of the pods; desired: the operator's status)")
    demand.set(ylabel="tasks", xlabel="seconds", title="Demand for GPUs (the operator's status)")
    for axes in (sizes, demand):
        axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.3)  # room for the legend
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.grid(visible=True, alpha=0.3)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(loc="upper right", fontsize="small", ncols=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _series(view: View, name: str, end: float) -> tuple[list[float], list[PoolView]]:
    seconds = [sample.at for sample in view.samples]
    pools = [next((pool for pool in sample.pools if pool.name == name), PoolView(name)) for sample in view.samples]
    return [*seconds, end], [*pools, pools[-1]] if pools else [PoolView(name)]
