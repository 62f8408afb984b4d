"""A kernel of one dimension: each of its threads in turn."""

import threading
from collections.abc import Callable
from typing import Any

_thread = threading.local()


class jit:  # noqa: N801 - as Numba calls it
    """A kernel, of the user's function."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __getitem__(self, size: tuple[int, int]) -> Callable[..., None]:
        def launch(*arguments: Any) -> None:
            for number in range(size[0] * size[1]):
                _thread.number = number
                self.function(*arguments)

        return launch


def grid(_dimensions: int) -> int:
    """The number of the thread that runs."""
    return int(_thread.number)
