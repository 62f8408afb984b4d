"""The machine's GPUs: found by their device files, offered to Kubernetes by NVIDIA's device plugin.

The plugin runs on the host. It tells the kubelet which device files a pod gets and names the GPUs in the pod's
environment, so no container runtime of NVIDIA's is needed; the driver's libraries come into pods by hostPath.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from local.control_plane.kube_api import KubeApi
from local.errors import LocalClusterError
from local.host.processes import Part

DEVICE_PLUGIN_PART = "nvidia-device-plugin"
PLUGINS_SOCKET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
"""Where device plugins register. No setting of a kubelet's moves it, so all of a machine's have the same."""
_DEVICE = re.compile(r"nvidia\d+")
_NVML = "libnvidia-ml.so.1"
_LIBRARY_PLACES = (
    Path("/usr/local/nvidia/lib64"),
    Path("/usr/lib/x86_64-linux-gnu"),
    Path("/usr/lib/aarch64-linux-gnu"),
    Path("/usr/lib64"),
    Path("/usr/lib/wsl/lib"),
)


def count_gpus(devices: Path = Path("/dev")) -> int:
    """Count the GPUs that the driver has made device files for."""
    return sum(_DEVICE.fullmatch(path.name) is not None for path in devices.iterdir())


def driver_libraries(places: Sequence[Path] = _LIBRARY_PLACES) -> Path:
    """Find the directory of the driver's libraries.

    Raises:
        LocalClusterError: there is none, although there are devices.
    """
    found = next((place for place in places if (place / _NVML).exists()), None)
    if found is None:
        looked = ", ".join(map(str, places))
        raise LocalClusterError(
            f"there are GPUs in /dev, but {_NVML}, the driver's library, is in none of {looked}: "
            "install the driver's user space, or write --gpus 8 for pretended GPUs."
        )
    return found


def plugins_socket_blocker(started: float, socket: Path = PLUGINS_SOCKET) -> str | None:
    """Tell why another kubelet must not start yet beside one that was started at `started`, in seconds since 1970.

    Each removes the socket that it finds and then listens there. One that does so between these two steps of another
    ends that one: the address is in use.
    """
    if socket.exists() and socket.stat().st_mtime >= started:
        return None
    return f"its kubelet does not listen for device plugins yet at {socket}"


def device_plugin(binary: Path) -> Part:
    """Start NVIDIA's device plugin: it registers with the machine's one kubelet, and again whenever that restarts.

    Raises:
        LocalClusterError: the driver's libraries are missing.
    """
    paths = [str(driver_libraries()), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = {
        "PASS_DEVICE_SPECS": "true",
        "DEVICE_LIST_STRATEGY": "envvar",
        "LD_LIBRARY_PATH": ":".join(paths),
    }
    return Part(DEVICE_PLUGIN_PART, (str(binary),), environment)


def gpus_blocker(api: KubeApi, node: str) -> str | None:
    """Tell why the node offers no GPU yet; None where it does."""
    found = api.get(f"/api/v1/nodes/{node}")
    offered = found["status"]["allocatable"].get("nvidia.com/gpu", "0") if found else "0"
    return None if int(offered) else f"the kubelet of {node} does not offer nvidia.com/gpu yet"
