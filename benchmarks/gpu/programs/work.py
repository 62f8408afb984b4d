"""The tasks. Each imports what it uses when it runs: the scheduler and CPU workers have no CuPy."""

from __future__ import annotations

from typing import Any

BYTES_OF_A_DOUBLE = 8


def warm(seed: int, size: int) -> str:
    """Make the context, load the libraries and compile the kernels that the others use. Gives the GPU's UUID."""
    import cupy  # noqa: PLC0415

    total = classic(seed, 1_000_000) + chain(seed, size, 1)
    try:
        total += transforms(seed, 1 << 20, 1)
    except ImportError:  # no cuFFT on this machine: whoever asks for transforms is told
        total += 0.0
    return str(cupy.cuda.runtime.getDeviceProperties(0)["uuid"]) if total else ""


def classic(seed: int, count: int) -> float:
    """`count` random doubles, every second one, + 1: their mean."""
    import cupy  # noqa: PLC0415

    return float((cupy.random.default_rng(seed).random(count)[::2] + 1).mean())


def chain(seed: int, size: int, repetitions: int) -> float:
    """A chain of products of square matrices of doubles, scaled so that it neither grows nor vanishes."""
    import cupy  # noqa: PLC0415

    cupy.random.seed(seed)
    factor = cupy.random.random((size, size)) * (2 / size)
    product = cupy.random.random((size, size))
    for _ in range(repetitions):
        product = factor @ product
    return float(product.mean())


def transforms(seed: int, length: int, repetitions: int) -> float:
    """Fourier transforms of complex doubles, there and back."""
    import cupy  # noqa: PLC0415

    cupy.random.seed(seed)
    signal = cupy.random.random(length).astype("c16")
    for _ in range(repetitions):
        signal = cupy.fft.ifft(cupy.fft.fft(signal))
    return float(signal.real.mean())


def seconds_of(name: str, size: int, repetitions: int) -> float:
    """How long a shape of that name takes on this GPU, after one that does not count."""
    import time  # noqa: PLC0415

    shape = {"chain": chain, "transforms": transforms}[name]
    shape(0, size, 1)
    began = time.perf_counter()
    shape(0, size, repetitions)
    return time.perf_counter() - began


def busy(seconds: float, size: int) -> float:
    """GPU: products of matrices for so long. Gives the seconds that it took, libraries and kernels included."""
    import time  # noqa: PLC0415

    began = time.perf_counter()
    import cupy  # noqa: PLC0415

    factor = cupy.random.random((size, size)) * (2 / size)
    product = cupy.random.random((size, size))
    while time.perf_counter() - began < seconds:
        product = factor @ product
        float(product.mean())  # waits for the product
    return time.perf_counter() - began


def first(submitted: float) -> dict[str, float]:
    """The first GPU task: what it finds and makes. `time.time()` seconds, by the step that ended then."""
    import time  # noqa: PLC0415

    stamps = {"submitted": submitted, "began": time.time()}
    import cupy  # noqa: PLC0415

    stamps["imported"] = time.time()
    cupy.cuda.runtime.free(0)
    stamps["context"] = time.time()
    stamps["mean"] = classic(0, 10_000_000)
    stamps["computed"] = time.time()
    return stamps


def load(seed: int, count: int, repetitions: int) -> Any:
    """CPU: make and sort `count` doubles, as often as told; every eighth of the last."""
    import numpy as np  # noqa: PLC0415

    random = np.random.default_rng(seed)
    for _ in range(repetitions):
        block = np.sort(random.random(count))
    return block[::8].copy()


def seconds_of_a_sort(seed: int, count: int) -> float:
    """CPU: how long one of a load's takes, after one that does not count."""
    import time  # noqa: PLC0415

    load(seed, count, 1)
    began = time.perf_counter()
    load(seed, count, 1)
    return time.perf_counter() - began


def largest(block: Any) -> float:
    """CPU: of one block."""
    return float(block.max())


def refine(block: Any, largest_of_all: float, size: int, repetitions: int) -> Any:
    """GPU: a block, scaled by what is known of all, after a chain of products."""
    import cupy  # noqa: PLC0415

    weight = chain(len(block), size, repetitions)
    return cupy.asnumpy(cupy.asarray(block) * weight / largest_of_all)


def summarise(block: Any, count: int, repetitions: int) -> float:
    """CPU: as much work as `load`, and the block's mean."""
    made = load(len(block), count, repetitions)
    return float(block.mean() + made.mean())


def hold(number: int, nbytes: int) -> Any:
    """GPU: an array of doubles that stays on the device."""
    import cupy  # noqa: PLC0415

    return cupy.full(nbytes // BYTES_OF_A_DOUBLE, number, dtype="f8")


def look(array: Any) -> tuple[bool, int, float]:
    """GPU: whether an array is on a device, its bytes, and its mean."""
    import cupy  # noqa: PLC0415

    return isinstance(array, cupy.ndarray), int(array.nbytes), float(array.mean())


def transports() -> list[str]:
    """UCX's transports to other workers from the one that runs this, or why it does not say."""
    import ucxx  # noqa: PLC0415

    try:
        return sorted(ucxx.get_active_transports())
    except Exception as error:  # noqa: BLE001 - what was measured stands
        return [f"not known: {error!r}"]


def touch(array: Any) -> int:
    """The bytes of an array, and nothing done with it: what is timed is its way here."""
    return int(array.nbytes)
