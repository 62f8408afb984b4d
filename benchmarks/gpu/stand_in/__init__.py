"""What takes CuPy's place in a dry run (`--stand-in`): pods without a GPU import it as `cupy`. Never measured with."""
