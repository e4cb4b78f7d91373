"""What `numerics="fast"` computes otherwise: sums of products in one rounding, and cheaper functions of floats.

In:     a `LoopProgram`.
Out:    the same, over `muladd` and `fast_...` of the operator table.
Holds:  float32 alone, which halves are computed in, too. A product is added in one rounding only if its value reads it
        nowhere else, and nothing is subtracted: what is exactly 0 where products are rounded (the variance of equal numbers, as
        a difference of two squares) stays 0, so that no root is taken of what is left of a rounding.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

import torch

from pliant.ir.loops import Extern, LoopProgram
from pliant.ir.ops import OPS
from pliant.ir.scalar import Apply, Const, Scalar, apply, children, rebuilt, walk

_FUNCTIONS = frozenset(op.removeprefix("fast_") for op in OPS if op.startswith("fast_"))


def in_fast_scalars(program: LoopProgram) -> LoopProgram:
    """The program in such scalars."""
    changed = [c if isinstance(c, Extern) else dataclasses.replace(c, value=_fast(c.value)) for c in program.computations]
    return dataclasses.replace(program, computations=changed)


def _fast(value: Scalar) -> Scalar:
    uses = Counter(part for x in walk(value) for part in children(x))
    made: dict[Scalar, Scalar] = {}
    for x in walk(value):
        if not isinstance(x, Apply) or x.dtype is not torch.float32:
            made[x] = rebuilt(x, made)
        elif x.op in _FUNCTIONS:
            made[x] = apply(f"fast_{x.op}", made[x.args[0]])
        else:
            made[x] = _added_at_once(x, uses, made) or rebuilt(x, made)
    return made[value]


def _added_at_once(x: Apply, uses: Mapping[Scalar, int], made: Mapping[Scalar, Scalar]) -> Scalar | None:
    """`muladd` of a sum that reads a product alone; None of others."""
    if x.op != "add" or any(map(_is_negated, x.args)):
        return None
    for product, other in (x.args, x.args[::-1]):
        if _is_product(product) and uses[product] == 1:
            return apply("muladd", *(made[a] for a in children(product)), made[other])
    return None


def _is_product(x: Scalar) -> bool:
    return isinstance(x, Apply) and x.op == "mul"


def _is_negated(x: Scalar) -> bool:
    """Whether adding it is subtracting what it has been made of."""
    if not isinstance(x, Apply):
        return False
    return x.op == "neg" or x.op == "mul" and any(map(_is_negated_factor, x.args))


def _is_negated_factor(x: Scalar) -> bool:
    return x.op == "neg" if isinstance(x, Apply) else isinstance(x, Const) and x.value < 0
