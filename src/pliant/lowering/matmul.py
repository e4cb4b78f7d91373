"""Rules to come."""
from __future__ import annotations

from typing import Any

RULES: dict[Any, Any] = {}
