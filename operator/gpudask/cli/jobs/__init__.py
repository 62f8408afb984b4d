"""Programs run as jobs, from a laptop: the manifest of one, its submission, and following it to its end.

`manifest` and `outcome` are pure functions; `submission` and `attachment` ask the API server. All that a job says is
text by others: it is cleaned before it is printed.
"""
