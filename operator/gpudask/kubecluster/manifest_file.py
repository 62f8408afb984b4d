"""A manifest from a YAML file, for `custom_cluster_spec`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gpudask.api.resource import KIND
from gpudask.kubecluster.errors import KubeClusterError


def read_manifest(custom: Any) -> Any:
    """What a path leads to: the GpuDaskCluster of a YAML file. Anything else as it is.

    Raises:
        KubeClusterError: no such file, no YAML, or not one GpuDaskCluster in it.
    """
    if not isinstance(custom, str | Path):
        return custom
    try:
        documents = [item for item in yaml.safe_load_all(Path(custom).read_text()) if item]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise KubeClusterError(
            f"cannot read custom_cluster_spec {str(custom)!r}",
            reason=str(error),
            next_step="Write the path of a YAML file, or a dict",
        ) from error
    if len(documents) == 1:
        return documents[0]
    ours = [item for item in documents if isinstance(item, dict) and item.get("kind") == KIND]
    if len(ours) != 1:
        raise KubeClusterError(
            f"custom_cluster_spec {str(custom)!r} is not one cluster",
            reason=f"the file holds {len(ours)} {KIND} in {len(documents)} documents",
            next_step="Leave one in it, and apply the others with kubectl",
        )
    return ours[0]
