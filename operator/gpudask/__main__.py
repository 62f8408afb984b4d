"""`python -m gpudask`: run the operator."""

from __future__ import annotations

import os
import sys

from gpudask.handlers import run
from gpudask.settings import SettingsError, read

_HELP = """usage: python -m gpudask

Runs the operator. It is set by environment variables:
  GPUDASK_WATCH_NAMESPACES  namespaces, comma-separated; empty: all
  GPUDASK_NAMESPACE         the operator's own namespace
  GPUDASK_KEY_SECRET        the Secret there with the operator's key; made when missing
  GPUDASK_LOG_LEVEL         DEBUG, INFO, WARNING or ERROR
  GPUDASK_LOG_FORMAT        plain or json
  GPUDASK_LEASE             the Lease there; of the operators that share it one acts (gpudask)
  GPUDASK_IDENTITY          the name of this one, unlike all others'; empty: one of its own
  GPUDASK_HEALTH_PORT       port of /livez and /healthz (8080)
  GPUDASK_MIRROR            true: show clusters to the stock Dask client, as kubernetes.dask.org objects
  GPUDASK_DEFAULT_IMAGE     the image of clusters whose manifest names none
  GPUDASK_LIMITS            what users may ask for, as JSON: the chart's limits
  GPUDASK_NETWORK_POLICIES  false: clusters get no NetworkPolicy
  KUBECONFIG                outside a cluster: how to reach one
"""


def main() -> int:
    """Run until told to stop; the exit status."""
    if len(sys.argv) > 1:
        sys.stdout.write(_HELP)
        return 0 if sys.argv[1] in ("-h", "--help") else 2
    try:
        settings = read(os.environ)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    run(settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
