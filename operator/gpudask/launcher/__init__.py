"""How the processes of pods start: `dask cuda worker` in one process, and dashboards when somebody asks for them.

`one_process` and `dashboard` run in those pods, in any image: they know the standard library, distributed and
dask_cuda, and nothing of this package. The operator never imports them, but writes their texts into command lines:
`script`. Why: docs/adr/0048-one-process.md and docs/adr/0062-dashboards-when-asked.md.
"""
