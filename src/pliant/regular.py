"""Regular expressions that are compiled when they are first used.

A first call loads all stages and uses a third of their expressions. To compile one takes as long as to load a small module.

In:     the text of an expression, and its flags.
Out:    `pattern(text, flags)`, used as what `re.compile` gives.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any


class _Pattern:
    def __init__(self, text: str, flags: int = 0) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    pattern = re.compile
else:
    pattern = _Pattern
