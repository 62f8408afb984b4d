"""The launcher of workers in pods of one GPU: `dask cuda worker` in one process (docs/adr/0048-one-process.md).

`one_process` runs in those pods, in any image: it knows the standard library, distributed and dask_cuda, and nothing of
this package. The operator never imports it, but writes its text into their command line: `script`.
"""
