"""Metrics as Prometheus reads them: by name and labels."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from gpudask.metrics.clusters import ClusterMetrics
from gpudask.metrics.families import CLUSTER_FAMILIES
from gpudask.metrics.exposition import header, utf8
from gpudask.metrics.operator import Metrics

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(pieces: Iterable[bytes]) -> Series:
    """All samples of an exposition; none stands in it twice."""
    found: Series = {}
    for family in text_string_to_metric_families(b"".join(pieces).decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} is there twice: Prometheus would refuse all of it"
            found[key] = sample.value
    return found


def read_cluster(cluster: ClusterMetrics, now: float) -> Series:
    """The samples of one cluster."""
    lines = (line for family in CLUSTER_FAMILIES for line in (header(family), *cluster.samples(family, now)))
    return read([utf8(lines)])


def value(of: Series | Metrics, name: str, **labels: str) -> float | None:
    """The one sample with at least these labels; None: there is none."""
    series = read(of.exposition()) if isinstance(of, Metrics) else of
    found = [value for (known, has), value in series.items() if known == name and labels.items() <= dict(has).items()]
    assert len(found) <= 1, f"{len(found)} series {name} with {labels}: name more labels"
    return found[0] if found else None


def names(series: Series) -> set[str]:
    """The names of all samples."""
    return {name for name, _ in series}
