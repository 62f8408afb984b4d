"""The client part of a program on a worker of a GPU pool, next to its data: `KubeCluster.run_on_gpu` and `%%gpudask`.

choice.py says what such a task asks for, run.py sends it and waits, client_part.py has what programs call, magic.py is
the notebook's. remote.py and cells.py run on the worker: they travel by value, and need distributed and cloudpickle
there.
"""
