"""Why a graph could not be read: for want of a device, of a module, or else; and the words for people."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .lowering import DESERIALIZE, describe

if TYPE_CHECKING:
    from ..requirements import Requirement

# Words of RAPIDS, CuPy, Numba, PyTorch and the drivers, in the name of an error's type, its text, or a module's name
_DEVICE = re.compile(
    r"cuda|nvml|nvidia|\bnvcc\b|\bgpus?\b|\bhip(error|rtc)|\brocm\b|\brmm\b|librmm|"
    r"\b(lib)?cu(df|py|ml|graph|spatial|cim|vs|proj|xfilter)\b|pylib(cudf|raft|cugraph)|\b(dask|numba)_cuda\b|\bdask_cudf\b",
    re.IGNORECASE,
)
_LOOKUP = re.compile(r"can't get attribute|has no attribute", re.IGNORECASE)  # of pickle, and of modules


class Kind(enum.Enum):
    """What the reader lacked."""

    DEVICE = "a device"
    MODULE = "a module"
    OTHER = "nothing that another pod would have"


@dataclass(frozen=True)
class Failure:
    """One try to read a graph that failed.

    Args:
        text: the error in one line.
        kind: what was missing there.
        error: the error itself; where its type could not be loaded here, one with its text.
        is_of_reading: it failed while it was read; else when it was lowered, which is the program's own fault.
    """

    text: str
    kind: Kind
    error: Exception = field(compare=False)
    is_of_reading: bool = True

    @classmethod
    def here(cls, error: Exception) -> Failure:
        """Return the failure of the scheduler itself."""
        chain = describe(error)["chain"]
        return cls(_line(chain), _kind(chain), error)

    @classmethod
    def on_worker(cls, said: dict[str, Any], error: Exception | None) -> Failure:
        """Return what a worker says. `error`: its exception, where it could be loaded."""
        chain = said["chain"]
        line = _line(chain)
        return cls(line, _kind(chain), error or RuntimeError(line), said["stage"] == DESERIALIZE)


def _kind(chain: list[Any]) -> Kind:
    for name, types, text, module in chain:
        if _DEVICE.search(f"{name}: {text} {module}"):
            return Kind.DEVICE
        if "ImportError" in types or ("AttributeError" in types and _LOOKUP.search(text)):
            return Kind.MODULE
    return Kind.OTHER


def _line(chain: list[Any]) -> str:
    name, _, text, _ = chain[0]
    return " ".join(f"{name.removeprefix('builtins.')}: {text}".split())


class GraphReadError(Exception):
    """A graph that cannot be read anywhere.

    Args:
        error: what the client is to get.
        is_of_program: it gets that as it is; else distributed says before it that the environments may differ.
    """

    def __init__(self, error: Exception, *, is_of_program: bool = True) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_of_program = is_of_program


def too_late(here: Failure, demand: Requirement, seconds: float) -> Exception:
    """Return the error of a graph that has waited too long for a worker."""
    wanted = ", ".join(f"{name}: {quantity:g}" for name, quantity in demand) or "nothing but the module"
    return TimeoutError(
        f"The scheduler lacks {here.kind.value} to read this graph ({here.text}), and no worker that could read it came"
        f" within {seconds:g} s. It waited for a worker that offers {wanted}. See `kubectl get gdc` for what keeps that"
        " pool from starting. Give the cluster a pool with `gpu: {}` and an image that has the program's modules, or"
        " more time: `config: {gpudask: {graphs: {timeout: 2h}}}` in its spec"
    )


def too_large(size: int, limit: int) -> Exception:
    """Return the error of a graph whose tasks take too much memory."""
    return ValueError(
        f"This graph's tasks have more than {limit:,} bytes (at least {size:,}), which the scheduler would have to"
        " hold, since only workers can read them. Load data in tasks, instead of sending it with the graph, or allow"
        " more in the cluster's spec: `config: {gpudask: {graphs: {max-size: 4GiB}}}`"
    )


def deadly(here: Failure, workers: int) -> Exception:
    """Return the error of a graph whose readers go away."""
    return RuntimeError(
        f"{workers} workers, one after the other, were lost or failed while they read this graph, which the scheduler"
        f" cannot read itself ({here.text}). See their logs: `gpudask logs`, or `KubeCluster.get_logs()`"
    )
