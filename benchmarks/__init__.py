"""Side-by-side measurements, each one command. Nothing here is imported by the operator.

A room for each: `startup`, and `clients`, which is built on it, `scale`, `scaling`, `ha`, `gpu`. They share `testbed`.
"""
