"""Symbolic shapes: expressions, ranges, what guards taught, and PyTorch's SymNode protocol on top.

Expressions:          expr (all names of nodes and arithmetic), operations, polynomials, rules/, traverse, printer, parse (reads what it wrote).
What is known:        bounds, facts, prove, simplify, final_guards.
One compilation:      shape_env (answers, guards), symbols, marked_sizes, runtime_asserts, advice, sym_node (what torch
                      calls), contiguity, loans.
"""

from pliant.symbolic import expr as expr  # gives the operators of nodes their rules
