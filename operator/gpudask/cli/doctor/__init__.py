"""What `gpudask doctor` looks at: `facts` reads it from the API server, the rest judges it and is pure."""
