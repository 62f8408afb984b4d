"""How a worker pod ends when somebody else than the operator ends it: a node drain, a spot notice, `kubectl delete`.

Before SIGTERM the kubelet runs a hook in the container. It tells the scheduler's preload that the pod goes, and waits
until its workers are drained, at most until the grace period is nearly over (docs/adr/0017-termination.md).
"""

from __future__ import annotations

from typing import Any

from gpudask.desired import names
from gpudask.desired.pod import MAIN_CONTAINER

Json = dict[str, Any]

# As Kubernetes has it by default: a worker that hangs at its end holds its GPU that long. A template can raise it.
GRACE_SECONDS = 30
# Of the grace, for the worker itself: it takes leave of the scheduler after SIGTERM.
_CLOSE_SECONDS = 10
_SHORTEST_SECONDS = 5

# Standard library only, and little of it: it must start in a blink, in any image that has Dask. Whatever goes wrong, a
# scheduler that is gone above all, lets the pod end. The keepalive notices a scheduler whose node is lost.
SCRIPT = """\
import socket as s, sys
host, port, path, seconds = sys.argv[1:]
try:
    c = s.create_connection((host, int(port)), 2)
    c.setsockopt(s.SOL_SOCKET, s.SO_KEEPALIVE, 1)
    for option in (s.TCP_KEEPIDLE, s.TCP_KEEPINTVL):
        c.setsockopt(s.IPPROTO_TCP, option, 10)
    c.setsockopt(s.IPPROTO_TCP, s.TCP_KEEPCNT, 3)
    c.settimeout(float(seconds))
    c.sendall(f"POST {path} HTTP/1.0\\r\\nHost: {host}\\r\\nContent-Length: 0\\r\\n\\r\\n".encode())
    while c.recv(4096):
        pass
except OSError:
    pass
"""


def with_hook(pod: Json, host: str, dask_name: str) -> Json:
    """`pod`, complete but for this, with the hook that waits for the drain of the workers called `dask_name`.

    A hook of the user's own stays. With a grace period of a few seconds there is no time to wait.
    """
    grace_seconds = pod["spec"].get("terminationGracePeriodSeconds")
    container: Json = next((c for c in pod["spec"].get("containers", ()) if c["name"] == MAIN_CONTAINER), {})
    own = container.get("lifecycle") or {}
    if not container or not isinstance(own, dict) or own.get("preStop"):
        return pod
    if not isinstance(grace_seconds, int) or grace_seconds < _SHORTEST_SECONDS:
        return pod
    wait_seconds = max(grace_seconds - _CLOSE_SECONDS, grace_seconds / 2)
    path = f"/gpudask/v1/leaving?pod={dask_name}"
    command = ["python3", "-IS", "-c", SCRIPT, host, str(names.HTTP_PORT), path, f"{wait_seconds:g}"]
    container["lifecycle"] = own | {"preStop": {"exec": {"command": command}}}
    return pod
