"""`python -m local`: finds the packages that the command line needs, then runs it. Standard library alone here."""

from __future__ import annotations

import sys

from local.bundle.start import prepare
from local.errors import LocalClusterError


def main() -> None:
    """Run the command line; what the user can act on is a message, not a traceback."""
    try:
        prepare(sys.argv[1:])
    except LocalClusterError as error:
        sys.exit(f"Error: {error}")
    from local.command_line import main as command_line  # noqa: PLC0415 - its packages are found just now

    command_line()


if __name__ == "__main__":
    main()
