"""The command: who takes part, and what is printed and kept."""

from __future__ import annotations

from benchmarks.clients import report
from benchmarks.clients.contestants import BareStockClient, ByHand, Connects, OurClient, StockClient
from benchmarks.clients.trial import ClientTrial
from benchmarks.startup.occasion import Occasion, Stage


def _floor(stage: Stage, namespace: str) -> Connects:
    return ByHand(stage.api, namespace)


def _gpudask(stage: Stage, namespace: str) -> Connects:
    return OurClient(stage.api, namespace, stage.kubeconfig)


def _peer(stage: Stage, namespace: str) -> Connects:
    return stage.peer(StockClient, namespace)


def _bare_peer(stage: Stage, namespace: str) -> Connects:
    return stage.peer(BareStockClient, namespace)


CLIENTS: Occasion[Connects] = Occasion(
    name="clients",
    about="How long a program waits for a cluster of two workers",
    makers={"floor": _floor, "gpudask": _gpudask, "peer": _peer, "barepeer": _bare_peer},
    default=("floor", "gpudask", "peer"),
    trials=ClientTrial,
    rounds_option="--rounds",
    table=report.table,
    last_line=report.last_line,
)

if __name__ == "__main__":
    CLIENTS.main()
