"""What signatures throughout this folder name: who traces, and what a call is given.

Holds:  what is traced by these is imported by nearly all who name them, so they are imported for type checkers alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pliant.capture.frame import Frame as Frame
    from pliant.capture.outside.world import World as World
    from pliant.capture.reconstruct.statements import Statements as Statements
    from pliant.capture.tracer import Tracer as Tracer
else:
    Frame = World = Statements = Tracer = Any

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
