"""The tests, which mirror the package; helpers are imported as `from tests.builders import ...`."""
