"""Rules to come."""
from __future__ import annotations

from typing import Any

RULES: dict[Any, Any] = {}


def rules(known: dict[Any, Any]) -> dict[Any, Any]:
    return {}
