"""A stand-in for CuPy in a dry run (`--stand-in`): pods without a GPU import it as `cupy`. Never measured with."""
