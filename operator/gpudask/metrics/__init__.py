"""The operator's metrics, for Prometheus: what they are, their values, and the port on which they are read.

What happens is counted where it happens: `reconcile` passes a `Metrics` on, and gives clients plain functions to call.
Nothing here asks the API server or a scheduler, or decides anything. Only `server` knows of HTTP, asyncio and clocks.
"""
