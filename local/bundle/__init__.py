"""The bundle: all that `up` needs, in parts of a limited size, for a machine without network.

Reading one takes Python's standard library alone: nothing here imports more. Packing has a room of its own.
"""
