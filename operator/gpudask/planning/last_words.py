"""What a container that does not stay up said last, and what its image may lack where it does not say it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudask.api.addresses import UCXX
from gpudask.api.quote import quote, quote_last_line
from gpudask.api.spec import Spec
from gpudask.planning.observed import Pod

# Dask ends with "Worker failed to start."; why stands above, if the kubelet kept that much of the log.
_LIBRARY = re.compile(r"^.*\b((?:ModuleNotFoundError|ImportError): .*)$", re.MULTILINE)
_TELLS_NOTHING = "failed to start"


def last_words(spec: Spec, pod: Pod) -> str:
    """The end of a sentence about `pod`: what it said, and what to look for; empty where it said nothing."""
    text = pod.ended.message.strip() if pod.ended else ""
    if not text:
        return ""
    if libraries := _LIBRARY.findall(text):
        return f"; it said: {quote(libraries[-1])}"
    said = quote_last_line(text)
    needs = list(_needs(spec, pod)) if _TELLS_NOTHING in said else []
    return f"; it said: {said}" + "".join(f"; {need}" for need in needs)


def _needs(spec: Spec, pod: Pod) -> Iterator[str]:
    if spec.protocol == UCXX:
        yield "with the protocol ucxx its image needs distributed-ucxx, for its CUDA version"
    gpu = next((pool.gpu for pool in spec.pools if pool.name == pod.pool), None)
    if gpu is None:
        return
    if gpu.rmm_pool_size is not None or gpu.rmm_allocator_for:
        yield f"for RMM its image needs {' and '.join(['rmm', *gpu.rmm_allocator_for])}"
    if gpu.pre_import:
        yield f"its image needs what gpu.preImport names: {', '.join(gpu.pre_import)}"
