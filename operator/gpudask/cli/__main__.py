"""`python -m gpudask.cli`."""

from gpudask.cli.main import main

if __name__ == "__main__":
    main()
