"""The ledger: every second that a pod holds a GPU has one cause, through restarts of operators and schedulers.

Pure: what was seen and what was counted before in, counters out. docs/ledger.md says what the causes mean.
"""
