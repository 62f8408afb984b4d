"""The fixtures of the operator's own tests: what needs an API server runs on the same stage."""

from tests.reconcile.conftest import operator, proxy, stage, through

__all__ = ["operator", "proxy", "stage", "through"]
