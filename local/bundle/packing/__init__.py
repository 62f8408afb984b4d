"""Packing a bundle, where the network is: what goes in, and how it is written.

Above `images` and `programs`, which make what is packed; reading a bundle is below them.
"""
