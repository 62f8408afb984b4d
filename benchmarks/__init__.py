"""Side-by-side measurements, each one command. Nothing here is imported by the operator."""
