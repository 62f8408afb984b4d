"""The custom resource: its models, conditions, limits and addresses, and the CRD made from the models.

Pure: values in, values out. Nothing here talks to a server, reads a clock or knows how pods look.
"""

from typing import Any

Json = dict[str, Any]
"""An object of JSON, such as one of Kubernetes: what is read field by field, or rendered."""
