"""The checks of `gpudask doctor`: `commands/doctor.py` reads the `facts`, and the rest judges them and is pure."""
