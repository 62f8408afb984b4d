"""Drains: a worker that is to go is closed to new tasks, its queue recalled, and its results moved or released.

The sequence for one worker is in `drain`, and who is drained in `retirement`. What runs on the worker is `gpu_results`
alone, which travels there by value.
"""
