"""A kernel of a GPU as text, with what its launch needs.

In:     `write_kernel(kernel, target)` of `writer.py` makes it.
Out:    the entry (`entry.py`) passes its arguments and launches it; `runtime/cuda/` builds its text.
Holds:  equal kernels (equal up to the names of buffers, sizes and loops) give equal text, so each is built once. The text
        includes nothing and needs `prelude.text_for(text)` before it.
"""

from __future__ import annotations

from pliant.ir.loops import Buffer
from pliant.records import dataclass
from pliant.symbolic.expr import Expr


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """`extern "C" __global__ void __launch_bounds__(threads) @(T0* a0, ..., int64_t n0, ...)`, `@` for its name.

    buffers, sizes: the arguments in order: a pointer for each buffer, then `int64_t` (or `double`, where the expression is
        a float) for each size. The text must not assume more alignment of a pointer than its element's.
    blocks: blocks of the grid in x, y and z, over the program's sizes; 0 of them: nothing is launched. A text that names
        `__cluster_dims__` has whole clusters of them.
    threads: threads of a block, in x, over the program's sizes: no more than the text's bound.
    shared: bytes of dynamic shared memory, beyond what the text declares.
    comment: comments that name the operators in it. work: points of its iteration space.
    rows: how many kernels of another text it runs, each in a row of blocks (`rows.py`), with the arguments of all, one after
        the other, as words of one; 0: it takes its arguments as they are.
    """

    text: str
    comment: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[Expr, ...]
    blocks: tuple[Expr, Expr, Expr]
    threads: Expr
    shared: int
    written: frozenset[Buffer]
    work: Expr
    rows: int = 0
