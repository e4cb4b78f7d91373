"""What `pliant.export` gives: a program, and what can be done with it.

In:     a `Program`.
Out:    `Exported`: called, compiled, saved, printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pliant.exporting.program import Program
from pliant.exporting.running import Caller, compiled, interpreted
from pliant.exporting.text import program_text
from pliant.exporting.writing import save


@dataclass(slots=True, eq=False)
class Exported(Program):
    """One whole graph that says all."""

    _caller: Caller | None = field(default=None, repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph operator by operator; gradients are not recorded."""
        if self._caller is None:
            self._caller = interpreted(self)
        return self._caller(*args, **kwargs)

    def compile(self, **options: object) -> Caller:
        """What runs it as compiled code, for every size in range. `options`: as in `pliant.compile(options=...)`."""
        return compiled(self, options)

    def save(self, path: Any) -> None:
        """Write it to one file, which `pliant.load` reads."""
        save(self, path)

    def __str__(self) -> str:
        return program_text(self)

    __repr__ = __str__
