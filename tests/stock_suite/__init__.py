"""The stock client's and the stock controller's own tests, unchanged, on a cluster with our operator.

They are no part of this repository: a checkout or an unpacked sdist of dask-kubernetes has them. `plugin` gives them
their fixtures, in the stock client's environment, and imports nothing of ours; `report` says what came of each test,
beside `expected.toml`.
"""
