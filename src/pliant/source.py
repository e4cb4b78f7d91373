"""Where in the user's program something comes from.

In:     a running Python stack.
Out:    `SourceLocation(file, line, function)`; its text is `file:line in function` and the source line.
Holds:  taking a location costs about a microsecond: it walks frames and reads no files until it is printed.
"""

from __future__ import annotations

import dataclasses
import functools
import linecache
import os
import re
import sys
from types import FrameType

from pliant.records import dataclass
from pliant.torch_adapter import PACKAGE

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.abspath(PACKAGE) + os.sep
_INSTALLED = r"[/\\](site|dist)-packages[/\\]"
_SKIPPED = (_OWN, _TORCH, "<")
_IMPORTING = "<frozen importlib."  # frames that `stacklevel` does not count
_UNWARNED = (_OWN, _TORCH, "<pliant ", _IMPORTING)


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Where Python's own modules and installed ones lie."""
    import sysconfig  # most processes never ask

    return tuple(sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """text: train.py:42 in step    print(loss)"""

    file: str
    line: int
    function: str
    caller: SourceLocation | None = dataclasses.field(default=None, compare=False)  # where a library was called

    @property
    def text(self) -> str:
        """The source line without its indentation, empty if it cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        place = f"{os.path.basename(self.file)}:{self.line} in {self.function}"
        place = f"{place}    {self.text}" if self.text else place
        return f"{place}\ncalled from {self.caller}" if self.caller is not None else place

    @property
    def is_library(self) -> bool:
        """Whether the file is an installed package's, or Python's own."""
        return self.file.startswith(_libraries()) or re.search(_INSTALLED, self.file) is not None


def user_location(depth: int = 1, *, libraries: bool = True) -> SourceLocation | None:
    """The innermost frame that is neither Pliant's nor PyTorch's (nor a library's), from `depth` callers up."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_SKIPPED):
            found = SourceLocation(code.co_filename, frame.f_lineno, code.co_name)
            if libraries or not found.is_library:
                return found
        frame = frame.f_back
    return None


def callers_to_program() -> int:
    """The `stacklevel` by which a warning that the caller gives is at the innermost frame that is neither Pliant's nor
    PyTorch's; at the outermost where there is none."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_UNWARNED):
        frame = frame.f_back
        level += not frame.f_code.co_filename.startswith(_IMPORTING)
    return level
