"""What `gpudask doctor` looks at: `reading` asks the API server for `facts`, the rest judges them and is pure."""
