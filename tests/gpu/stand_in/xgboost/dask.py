"""As much of `xgboost.dask` as the program calls."""

from typing import Any

import numpy as np


class DaskDMatrix:
    """Features, and what is to be learned from them."""

    def __init__(self, client: Any, features: Any, target: Any) -> None:
        self.features, self.target = (np.asarray(part) for part in client.gather(client.compute([features, target])))


def train(_client: Any, _options: Any, data: DaskDMatrix, *, num_boost_round: int, evals: Any) -> Any:
    """Fit a plane; the error stands in the history of each round."""
    solved = np.linalg.lstsq(data.features, data.target, rcond=None)[0]
    error = float(np.sqrt(np.mean((data.features @ solved - data.target) ** 2)))
    return {"history": {name: {"rmse": [error] * num_boost_round} for _, name in evals}}
