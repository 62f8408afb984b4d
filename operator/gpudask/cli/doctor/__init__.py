"""The checks of `gpudask doctor`: `reading` asks the API server for `facts`, the rest judges them and is pure."""
