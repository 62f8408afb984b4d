"""The bundle: all that `up` needs, in parts of a limited size, for a machine without network.

Reading a bundle takes Python's standard library alone: manifest, verifying, unpacking, activation and start import
nothing else. Packing (contents, host_programs, wheel_sets, writing) runs where the network is.
"""
