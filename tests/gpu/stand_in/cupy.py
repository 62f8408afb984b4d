"""NumPy in CuPy's place, with the one function that it lacks."""

import sys

import numpy as np

np.asnumpy = np.asarray  # type: ignore[attr-defined]
sys.modules[__name__] = np
