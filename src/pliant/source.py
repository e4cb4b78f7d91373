"""Where in the user's program something comes from.

In:     a running Python stack.
Out:    `SourceLocation(file, line, function)`; its text is `file:line in function` and the source line.
Holds:  taking a location costs about a microsecond: it walks frames and reads no files until it is printed.
"""

from __future__ import annotations

import dataclasses
import linecache
import os
import sys
from types import FrameType

import torch

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_SKIPPED = (_OWN, _TORCH, "<")


@dataclasses.dataclass(frozen=True, slots=True)
class SourceLocation:
    """text: train.py:42 in step    print(loss)"""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The source line without its indentation, empty if it cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        place = f"{os.path.basename(self.file)}:{self.line} in {self.function}"
        return f"{place}    {self.text}" if self.text else place


def user_location(depth: int = 1) -> SourceLocation | None:
    """The innermost frame that is neither Pliant's nor PyTorch's, from `depth` callers up."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_SKIPPED):
            return SourceLocation(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None
