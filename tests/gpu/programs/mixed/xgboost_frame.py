"""XGBoost, trained on a frame of cuDF: it learns a straight line."""

import cudf
import dask_cudf
import numpy as np
from distributed import default_client
from xgboost import dask as boosting

ROWS = 20_000
GENERATOR = np.random.default_rng(23)
HOST = {"a": GENERATOR.random(ROWS), "b": GENERATOR.random(ROWS)}


def program():
    client = default_client()
    features = dask_cudf.from_cudf(cudf.DataFrame(HOST), npartitions=4)
    target = features["a"] * 2 + features["b"]
    data = boosting.DaskDMatrix(client, features, target)
    options = {"device": "cuda", "tree_method": "hist"}
    trained = boosting.train(client, options, data, num_boost_round=30, evals=[(data, "train")])
    return [trained["history"]["train"]["rmse"][-1] < 0.1]


def expected(_pandas):
    return [True]
