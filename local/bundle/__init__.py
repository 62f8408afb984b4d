"""What `up` needs, packed into parts that fit through a narrow door, and unpacked where there is no network.

Reading a bundle takes Python's standard library alone: manifest, verifying, unpacking, activation and start import
nothing else. Packing (contents, host_programs, wheel_sets, writing) runs where the network is.
"""
