"""Patterns: calls of a graph that are found by a plain Python function, and replaced by those of another.

- `pattern.py`: `Pattern`
- `finding.py`: `find`, which hands matches back as nodes
- `traced.py`: functions as ATen graphs
- `matcher.py`: where a graph has the calls of another
- `recorded.py`: a captured program as the graph in which patterns are looked for
- `rewriting.py`: a captured program with matches replaced
- `substitution.py`: replacements, checked and laid out
- `attention.py`: attention that programs write out; `scores.py`, `axes.py`: how it computes its scores; `attend.py`: what replaces it;
  `attention_cost.py`: where that is faster
- `program_pass.py`: patterns as passes over exported programs
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pliant.patterns.finding import Match as Match
    from pliant.patterns.finding import find as find
    from pliant.patterns.pattern import Pattern as Pattern

__all__ = ["Match", "Pattern", "find"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'pliant.patterns' has no attribute {name!r}")
    from pliant.patterns import finding, pattern

    return getattr(pattern if name == "Pattern" else finding, name)
