"""The programs. They know nothing of the tests."""
