"""A user's module that stands in for cuDF: pandas' frames that can be unpickled only in a process that has a device.

`DEVICES=none` in the environment says that it has none. Each process that unpickles one is written down in `READERS`.
"""

import os
from pathlib import Path

import pandas as pd
from dask.dataframe.dispatch import meta_nonempty


class CudaError(RuntimeError):
    pass


class DeviceSeries(pd.Series):
    @property
    def _constructor(self):
        return DeviceSeries

    @property
    def _constructor_expanddim(self):
        return DeviceFrame

    def __reduce__(self):
        return _load, (DeviceSeries, pd.Series(self))

    def __reduce_ex__(self, protocol):
        return self.__reduce__()


class DeviceFrame(pd.DataFrame):
    @property
    def _constructor(self):
        return DeviceFrame

    @property
    def _constructor_sliced(self):
        return DeviceSeries

    def __reduce__(self):
        return _load, (DeviceFrame, pd.DataFrame(self))

    def __reduce_ex__(self, protocol):
        return self.__reduce__()


@meta_nonempty.register((DeviceFrame, DeviceSeries))
def _meta_nonempty(meta):
    """Keep what it is of, as cuDF's backend for Dask does."""
    of, on_host = (DeviceFrame, pd.DataFrame) if isinstance(meta, DeviceFrame) else (DeviceSeries, pd.Series)
    return of(meta_nonempty(on_host(meta)))


def to_device(frame):
    need_device()
    return DeviceFrame(frame)


def to_host(frame):
    need_device()
    return pd.DataFrame(frame)


def need_device():
    if "READERS" in os.environ:
        with Path(os.environ["READERS"]).open("a") as readers:
            readers.write(f"{os.environ.get('NAME', '')}\n")
    if "DEADLY" in os.environ:
        os._exit(1)
    if os.environ.get("DEVICES") == "none":
        raise CudaError("cudaErrorNoDevice: no CUDA-capable device is detected")


def _load(of, value):
    need_device()
    return of(value)


def twice(number):
    return 2 * number


def doubled(frame):
    return frame * 2
