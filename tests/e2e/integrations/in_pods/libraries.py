"""What libraries compute on a cluster by their own interfaces to Dask, one after the other.

Arguments: the cluster's name. Each prints a line `library: what was seen`.
"""

import sys

import dask.array as da
import joblib
import numpy as np
from distributed import Client, get_worker
from lightgbm import DaskLGBMClassifier
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from xgboost import dask as dxgb

from gpudask import KubeCluster

ROWS, CHUNK = 400, 100


def say(step: str, *seen: object) -> None:
    """Print a line for the test."""
    print(f"{step}:", *seen, flush=True)


def is_on_a_worker(number: int) -> tuple[int, bool]:
    """The number doubled, and whether a Dask worker did it."""
    try:
        get_worker()
    except ValueError:
        return 2 * number, False
    return 2 * number, True


def rows() -> tuple[da.Array, da.Array]:
    """Two features, and whether their sum is above one: what a tree can learn."""
    features = np.random.default_rng(7).random((ROWS, 2))
    labels = (features.sum(axis=1) > 1).astype(int)
    return da.from_array(features, chunks=(CHUNK, 2)), da.from_array(labels, chunks=CHUNK)


def with_joblib() -> None:
    """`joblib.Parallel`."""
    with joblib.parallel_config(backend="dask"):
        done = joblib.Parallel()(joblib.delayed(is_on_a_worker)(number) for number in range(8))
    say("joblib", [number for number, _ in done], all(there for _, there in done))


def with_scikit_learn() -> None:
    """A grid search, whose fits are the tasks."""
    features, labels = load_iris(return_X_y=True)
    search = GridSearchCV(LogisticRegression(max_iter=500), {"C": [0.1, 1.0, 10.0]}, cv=3)
    with joblib.parallel_config(backend="dask"):
        search.fit(features, labels)
    say("scikit-learn", f"{search.best_score_:.2f}", len(search.cv_results_["params"]))


def with_xgboost(client: Client) -> None:
    """`xgboost.dask.train`, whose workers speak with each other."""
    features, labels = rows()
    data = dxgb.DaskDMatrix(client, features, labels)
    trained = dxgb.train(
        client, {"objective": "binary:logistic", "tree_method": "hist", "nthread": 1}, data, num_boost_round=8
    )
    guessed = (dxgb.predict(client, trained, features) > 0.5).compute()
    say("xgboost", f"{(guessed == labels.compute()).mean():.2f}")


def with_lightgbm(client: Client) -> None:
    """`DaskLGBMClassifier`, whose workers listen for each other."""
    features, labels = rows()
    model = DaskLGBMClassifier(client=client, n_estimators=8, num_leaves=7, min_child_samples=5, verbose=-1)
    model.fit(features, labels)
    guessed = model.predict(features).compute()
    say("lightgbm", f"{(guessed == labels.compute()).mean():.2f}")


def with_adapt(cluster: KubeCluster, client: Client) -> None:
    """`adapt` as programs for other cluster managers call it."""
    limits = cluster.adapt(minimum=1, maximum=2)
    say("adapt", limits.minimum, limits.maximum, client.submit(sum, [1, 2]).result(timeout=60))


if __name__ == "__main__":
    with KubeCluster.from_name(sys.argv[1], quiet=True) as found, Client(found) as own_client:
        found.wait_for_workers(2, timeout=120)
        with_joblib()
        with_scikit_learn()
        with_xgboost(own_client)
        with_lightgbm(own_client)
        with_adapt(found, own_client)
