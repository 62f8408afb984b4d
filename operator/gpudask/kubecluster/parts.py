"""The parts of one `KubeCluster`, made in the order in which they need each other.

They load with the first cluster: HTTP, websockets and the models take as long to load as distributed, which a program
that only names the class has loaded anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dask.config
from distributed.deploy.cluster import Cluster
from distributed.security import Security

from gpudask.kubecluster.conditions import Conditions
from gpudask.kubecluster.display import Progress
from gpudask.kubecluster.on_gpu.client_part import ClientPart
from gpudask.kubecluster.resource import Lease, Resource
from gpudask.kubecluster.scheduler.connection import SchedulerConnection
from gpudask.kubecluster.scheduler.outage import Reconnector
from gpudask.kubecluster.stock.attributes import StockAttributes
from gpudask.kubecluster.stock.options import read_options
from gpudask.kubecluster.timing import Timing
from gpudask.kubecluster.workers import Workers


class Parts:
    """What one cluster manager owns.

    Args:
        cluster: the manager.
        given: its arguments by name, and more.
        others: what it was given beside them.
        security: TLS settings.
        timing: intervals and deadlines.
        progress: what shows a wait.
        log: what prints a line.

    Raises:
        KubeClusterError: an argument cannot be used; the message says what to write.
    """

    def __init__(
        self,
        cluster: Cluster,
        given: Mapping[str, Any],
        others: Mapping[str, Any],
        *,
        security: Security,
        timing: Timing,
        progress: Callable[[], Progress],
        log: Callable[[str], None],
    ) -> None:
        options = read_options(given, others, dask.config.config)
        self.resource = Resource(options, timing=timing)
        self.connection = SchedulerConnection(
            self.resource, options, security=security, log=log, progress=progress, timing=timing
        )
        both = self.resource, self.connection
        self.lease = Lease(self.resource)
        self.reconnector = Reconnector(*both, cluster=cluster, progress=progress, timing=timing)
        self.conditions = Conditions(*both, self.reconnector, cluster=cluster, timing=timing)
        self.workers = Workers(*both, self.reconnector, self.conditions, progress=progress, timing=timing)
        self.client_part = ClientPart(self.resource, cluster)
        self.stock = StockAttributes(options, *both)
