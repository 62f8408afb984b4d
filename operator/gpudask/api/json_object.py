"""An object of JSON, such as one of Kubernetes: what is read field by field, or rendered."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
