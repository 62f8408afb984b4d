"""A user's module with values that the scheduler cannot unpickle, where it and its workers share a process.

What it calls itself stands above on the stack, or does so in the thread for such work.
"""

import sys
import threading

gate = threading.Event()  # a reader waits for it
gate.set()
runs = []


class CudaError(RuntimeError):
    pass


class Value:
    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return _load, (self.number,)

    def __dask_tokenize__(self):
        return type(self).__name__, self.number

    def __call__(self, *_):
        return self.number


class Broken(Value):
    """Fails on every worker, too: the program's own fault."""

    def __reduce__(self):
        return _fail, ()


class Unlowerable(Value):
    """Can be unpickled, and not be lowered."""

    def __reduce__(self):
        return _unlowerable, ()


def read(value, *_):
    return value.number


def fail_twice(value):
    runs.append(value)
    if len(runs) <= 2:
        raise ZeroDivisionError
    return value.number


def _load(number):
    _refuse()
    return Value(number)


def _fail():
    _refuse()
    raise ValueError("broken by its author")


def _unlowerable():
    _refuse()
    return Unlowerable(0)


def _refuse():
    thread = threading.current_thread().name
    files = _files_above()
    is_message = any(name.endswith("comm/utils.py") for name in files)  # a large one, which a worker reads in a thread
    if any(name.endswith("intake.py") for name in files) or (thread.startswith("Dask-Offload") and not is_message):
        raise CudaError("cudaErrorNoDevice")
    if thread.startswith("asyncio_"):
        gate.wait(30)


def _files_above():
    frame, names = sys._getframe(), []
    while frame is not None:
        names.append(frame.f_code.co_filename)
        frame = frame.f_back
    return names
