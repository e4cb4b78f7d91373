"""Interned symbolic expressions over integers, floats and booleans.

In:     constants, symbols and Python operators on expressions.
Out:    `Expr` nodes; equal expressions are the same object (`is`), so dictionaries and sets need no deep comparison.
Holds:  an integer expression is a canonical sum of products `const + coef*mono + ...` over atoms (symbols, `a // b`).
        Comparisons of integers are `p == 0`, `p != 0` or `p <= 0` with coprime coefficients.
        Floats keep their evaluation order.
        Integers are mathematical integers; an expression means something only where no divisor in it is zero.
        Every rewrite holds for all values of the symbols: what needs a range lives in `simplify.py` and `prove.py`.
Memory: nodes live as long as the process; symbol names repeat between compilations, and so do their expressions.
Reads on: `nodes.py`, `operations.py` (the nodes), `polynomials.py` (sums and products), `rules/` (one file a theme),
        `traverse.py`, `bounds.py`, `shape_env.py`.

All names of the three modules of nodes are found here, and here their operators get their rules.
"""

from __future__ import annotations

from pliant.symbolic import nodes, polynomials, printer
from pliant.symbolic.nodes import *  # noqa: F403
from pliant.symbolic.operations import *  # noqa: F403
from pliant.symbolic.polynomials import *  # noqa: F403
from pliant.symbolic.rules import division, floats, powers, relations

nodes.use(
    nodes.Rules(
        add=polynomials.add,
        sub=polynomials.sub,
        mul=polynomials.mul,
        neg=polynomials.neg,
        floordiv=division.floordiv,
        mod=division.mod,
        truediv=floats.truediv,
        power=powers.power,
        eq=relations.eq,
        ne=relations.ne,
        lt=relations.lt,
        le=relations.le,
        and_=relations.and_,
        or_=relations.or_,
        not_=relations.not_,
        text=printer.to_python,
    )
)
