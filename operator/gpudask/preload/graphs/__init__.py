"""Graphs that the scheduler cannot read: a worker reads them, and the scheduler keeps their tasks as bytes.

The sequence is in `intake`. What runs on the worker is `lowering` alone, which travels there by value.
"""
