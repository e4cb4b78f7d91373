"""From a loop program to kernels in order: the pass as one function.

In:     a `LoopProgram`.
Out:    a `Schedule`.
Reads on: `fuse.py`, `order.py`, `memory.py`; `kernel.py` has the types.
"""

from __future__ import annotations

from pliant import config
from pliant.ir.loops import LoopProgram
from pliant.schedule.fuse import fuse
from pliant.schedule.kernel import Schedule
from pliant.schedule.memory import plan
from pliant.schedule.order import early_folds, products_in_turn


def schedule(program: LoopProgram, options: config.Schedule) -> Schedule:
    """Fuse, order and plan the memory of a program."""
    steps = products_in_turn(program, early_folds(program, fuse(program, options)))
    return plan(program, steps, options)
