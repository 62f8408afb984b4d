"""The JSON of docs/preload-protocol.md: what the preload answers, and what the operator asks for."""

from __future__ import annotations

from gpudask.api import Json

import json
import re
from pathlib import Path


_PAGE = (Path(__file__).resolve().parents[1] / "docs" / "preload-protocol.md").read_text()
_ROUTE = re.compile(r"^## `(?:GET|POST) /gpudask/v1/(\w+).*?^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCKS: dict[str, Json] = {
    route: json.loads(text)
    for part in re.split(r"^(?=## )", _PAGE, flags=re.MULTILINE)
    for route, text in _ROUTE.findall(part)
}
DEMAND = _BLOCKS["demand"]
"""An answer of the demand route."""
DESIRED = _BLOCKS["desired"]
"""A body of the desired route."""
OPTIONAL = {
    name
    for names, meaning in re.findall(r"^\| (.*?) \| (.*)$", _PAGE, re.MULTILINE)
    if meaning.startswith("optional: ")
    for name in re.findall(r"`(?:\w+\[\]\.)?(\w+)`", names)
}
"""The fields that an answer may lack, at whatever depth."""
