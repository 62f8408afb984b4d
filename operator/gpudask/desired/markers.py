"""The words by which a pod asks node autoscalers to leave it alone, or says that it may go.

Karpenter: https://karpenter.sh/docs/concepts/disruption/#pod-level-controls
Cluster Autoscaler: https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md
When a pod says which is `planning`'s.
"""

from __future__ import annotations

from gpudask.api.pool import Pool
from gpudask.api.spec import Spec

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
MARKERS = (DO_NOT_DISRUPT, SAFE_TO_EVICT)


def markers(spec: Spec, pool: Pool | None, *, guarded: bool) -> dict[str, str]:
    """The annotations of a pod of `pool`, None: of the scheduler. Those that a template sets stay as they are there."""
    ours = {DO_NOT_DISRUPT: str(guarded).lower(), SAFE_TO_EVICT: str(not guarded).lower()}
    theirs = spec.template.metadata.annotations | (pool or spec.scheduler).template.metadata.annotations
    return {name: value for name, value in ours.items() if name not in theirs}
