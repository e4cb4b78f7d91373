"""PyTorch's SymNode protocol over our expressions.

In:     the calls that `torch.SymInt`, `torch.SymFloat`, `torch.SymBool` and ATen's C++ make on their `node`.
Out:    new nodes; plain numbers where torch must know a value (`guard_int`, `bool_`...), which records guards.
Holds:  a node is an expression and the shape environment that owns its symbols; arithmetic never guards.

The names and signatures are PyTorch's (c10/core/SymNodeImpl.h, torch/csrc/utils/python_symnode.h).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from pliant.symbolic import contiguity
from pliant.symbolic import expr as x
from pliant.symbolic.expr import Expr, Kind, Number
from pliant.symbolic.loans import lent
from pliant.symbolic.rules import extrema, floats, powers, relations
from pliant.symbolic.simplify import needs_exact_integers

if TYPE_CHECKING:
    from pliant.symbolic.shape_env import ShapeEnv

_EXACT = 1 << 53
# Code of ATen that is right for every value if it is told that nothing is certain: sizes that broadcast (which it requires
# to be equal then), the order of memory (it assumes nothing), sizes of views, products (sizes 1 are as others).
_CERTAIN = ("ATen/ExpandUtils.cpp", "core/Contiguity.h", "ATen/InferSize.h", "native/Linear.cpp")
# Code of PyTorch in Python of which the first row holds, in versions below 2.12: a file and a function, and how many of PyTorch's
# helpers may stand between it and the shape environment.
_CERTAIN_IN_PYTHON, _HELPERS = ("torch/_refs/__init__.py", "_broadcast_shapes"), 4
# Code that copies memory if it is told so, where a view would do at some sizes.
_COPIES = ("ATen/TensorUtils.cpp", "core/TensorBase.h")
# PyTorch's check of a gradient's shape. It asks whether sizes are 1 where they are the same in any case.
_GRADIENT_SHAPES = "autograd/input_metadata.cpp"
# PyTorch's derivative formulas. They ask for numbers to make an index of all elements (`as_strided`'s).
_DERIVATIVES = "autograd/FunctionsManual.cpp"


def broadcasts_in_python(frame: FrameType | None) -> bool:
    """Whether it is that code which asks, by way of this frame."""
    file, function = _CERTAIN_IN_PYTHON
    for _ in range(_HELPERS + 1):
        frame = frame.f_back if frame is not None else None
        if frame is not None and frame.f_code.co_name == function:
            return frame.f_code.co_filename.endswith(file)
    return False


class _Printed(threading.local):
    """The numbers that texts are made of in this thread, while somebody wants to know."""

    nodes: list[SymNode] | None = None


PRINTED = _Printed()


class SymNode:
    """One symbolic number of kind `pytype`."""

    __slots__ = ("_expr", "shape_env", "pytype", "__weakref__")

    def __init__(self, expr: Expr, shape_env: ShapeEnv) -> None:
        self._expr = expr
        self.shape_env = shape_env
        self.pytype: Kind = expr.kind

    # -- what it is ---------------------------------------------------------------------------------------------------
    @property
    def expr(self) -> Expr:
        env = self.shape_env
        return env.replace(self._expr) if env.facts.replacements else self._expr

    @property
    def hint(self) -> Number | None:
        return self.shape_env.hint(self._expr)

    @property
    def _hint(self) -> Number | None:
        return self.hint  # torch's `statically_known_true` reads this name (2.13)

    @property
    def constant(self) -> Number | None:
        e = self._expr
        return e.value if isinstance(e, x.Constant) else None

    fx_node = None

    def has_hint(self) -> bool:
        # Without one C++ keeps a question of contiguity as it is for who asks, who may copy.
        return self.hint is not None and not self.shape_env.takes_copies

    def require_hint(self, fallback: Number | None = None) -> Number:
        hint = self.hint
        if hint is not None:
            return hint
        return fallback if fallback is not None else self.shape_env.evaluate(self.expr)

    def is_int(self) -> bool:
        return self.pytype is int

    def is_float(self) -> bool:
        return self.pytype is float

    def is_bool(self) -> bool:
        return self.pytype is bool

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> int | None:
        return None

    def is_constant(self) -> bool:
        """Whether it is a number wrapped as a node: never true of a symbol, even one that has become known, since C++
        then takes it for a plain number; nor of a float, which torch's operators cannot read back."""
        return isinstance(self._expr, x.Constant) and self.pytype is not float

    def is_symbolic(self) -> bool:
        return True

    def maybe_as_int(self) -> int | None:
        e = self.expr
        return e.const if type(e) is x.Integer else None

    def maybe_as_float(self) -> float | None:
        e = self.expr
        return e.value if isinstance(e, x.Float) else None

    def maybe_as_bool(self) -> bool | None:
        e = self.expr
        return e.value if isinstance(e, x.Bool) else None

    def constant_int(self) -> int | None:
        return self.maybe_as_int()

    def constant_bool(self) -> bool | None:
        return self.maybe_as_bool()

    def clone(self) -> SymNode:
        return self

    def with_shape_env(self, shape_env: ShapeEnv) -> SymNode:
        return SymNode(self._expr, shape_env)

    def str(self) -> str:  # torch's name
        return self.__str__()  # type: ignore[no-any-return]

    def __str__(self) -> Any:
        if PRINTED.nodes is not None and self.expr.free:
            PRINTED.nodes.append(self)
        return repr(self.expr)

    __repr__ = __str__

    def _graph_repr(self) -> Any:
        return self.__str__()

    def __eq__(self, other: object) -> Any:
        if isinstance(other, SymNode):
            return self.expr is other.expr and self.shape_env is other.shape_env
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.expr)

    # -- constants of the same environment ----------------------------------------------------------------------------
    def wrap_int(self, value: int) -> SymNode:
        return SymNode(x.Integer(value), self.shape_env)

    def wrap_float(self, value: float) -> SymNode:
        return SymNode(x.Float(value), self.shape_env)

    def wrap_bool(self, value: bool) -> SymNode:
        return SymNode(x.Bool(value), self.shape_env)

    # -- decisions ----------------------------------------------------------------------------------------------------
    def guard_int(self, file: Any = "", line: int = 0) -> int:
        if file.endswith(_DERIVATIVES):
            return self.shape_env.lend(self.expr)
        number = lent(self, file)
        if number is not None:
            return int(number)
        return int(self.shape_env.evaluate(self.expr))

    def guard_float(self, file: Any = "", line: int = 0) -> float:
        number = lent(self, file)
        if number is not None:
            return float(number)
        return float(self.shape_env.evaluate(self.expr))

    def guard_bool(self, file: Any = "", line: int = 0) -> bool:
        return self.shape_env.answer(self.expr)

    def int_(self) -> int:
        return int(self.shape_env.evaluate(self.expr))

    def bool_(self) -> bool:
        return self.shape_env.answer(self.expr, size_only=True)

    def expect_true(self, file: Any = "", line: int = 0) -> bool:
        return self.shape_env.expect_true(self.expr)

    def statically_known_true(self, file: Any = "", line: int = 0) -> bool:
        return self.shape_env.statically_known(self.expr) is True

    def guard_or_false(self, file: Any = "", line: int = 0) -> bool:
        if file.endswith(_GRADIENT_SHAPES) and self.hint == 0:
            return False
        if file.endswith((*_CERTAIN, *_COPIES)):
            return self.shape_env.certain(self.expr, file.endswith(_COPIES))
        return bool(self.shape_env.evaluate(self.expr, fallback=False))

    def guard_or_true(self, file: Any = "", line: int = 0) -> bool:
        if file.endswith((*_CERTAIN, *_COPIES)):
            return not self.shape_env.certain(self.expr.not_(), file.endswith(_COPIES))
        return bool(self.shape_env.evaluate(self.expr, fallback=True))

    def guard_size_oblivious(self, file: Any = "", line: int = 0) -> bool:
        return bool(self.shape_env.evaluate(self.expr, size_oblivious=True))

    def expect_size(self, file: Any = "", line: int = 0) -> bool:
        self.shape_env.mark_size_like(self.expr)
        return self.shape_env.expect_true(self.expr.ge(0))

    # -- selection and sums -------------------------------------------------------------------------------------------
    def sym_ite(self, then: SymNode, other: SymNode) -> SymNode:
        return SymNode(relations.select(self.expr, then.expr, other.expr), self.shape_env)

    def sym_sum(self, items: Sequence[SymNode]) -> SymNode:
        total: Expr = x.ZERO
        for item in items:
            total = x.add(total, item.expr)
        return SymNode(total, self.shape_env)

    def round(self, ndigits: int | None = None) -> SymNode:
        e = self.expr
        if ndigits is None:
            return SymNode(self._rounded(floats.round_to_int(e)), self.shape_env)
        return SymNode(e if e.kind is int else floats.round_digits(e, x.Integer(ndigits)), self.shape_env)

    def trunc(self) -> SymNode:
        return SymNode(self._rounded(floats.to_int(self.expr)), self.shape_env)

    def floor(self) -> SymNode:
        return SymNode(self._rounded(floats.floor(self.expr)), self.shape_env)

    def ceil(self) -> SymNode:
        return SymNode(self._rounded(floats.ceil(self.expr)), self.shape_env)

    def abs(self) -> SymNode:
        # |a| = max(a, -a)      integers
        e = self.expr
        value = extrema.maximum(e, x.neg(e)) if e.kind is int else floats.absolute(e)
        return SymNode(self.shape_env.simplify(value), self.shape_env)

    def sym_int(self) -> SymNode:
        return self.trunc()

    def _rounded(self, e: Expr) -> Expr:
        """An integer operation for the rounding of a quotient, at the price of a guard that floats are exact there."""
        env = self.shape_env
        for n in needs_exact_integers(e):
            hint = env.hint(n)
            if hint is None or not 0 <= hint <= _EXACT:
                return e
            env.evaluate(n.le(_EXACT))
        return env.simplify(e)

    # -- layout questions of ATen, arithmetic: installed from the tables below ----------------------------------------
    def is_non_overlapping_and_dense_indicator(self, sizes: Sequence[SymNode], strides: Sequence[SymNode]) -> SymNode:
        return SymNode(floats.to_int(self.is_non_overlapping_and_dense(sizes, strides).expr), self.shape_env)

    if TYPE_CHECKING:

        def __getattr__(self, name: Any) -> Callable[..., SymNode]: ...


def _binary(function: Callable[[Expr, Expr], Expr]) -> Callable[[SymNode, SymNode], SymNode]:
    remembered = x.rule_memo(function)  # ATen compares the same few sizes thousands of times a trace

    def method(self: SymNode, other: SymNode) -> SymNode:
        return SymNode(remembered(self.expr, other.expr), self.shape_env)

    return method


def _ranged(function: Callable[[Expr, Expr], Expr]) -> Callable[[SymNode, SymNode], SymNode]:
    """For operations whose result ranges often decide: `max(1, s0)` is s0."""

    def method(self: SymNode, other: SymNode) -> SymNode:
        return SymNode(self.shape_env.simplify(function(self.expr, other.expr)), self.shape_env)

    return method


def _unary(function: Callable[[Expr], Expr]) -> Callable[[SymNode], SymNode]:
    def method(self: SymNode) -> SymNode:
        return SymNode(function(self.expr), self.shape_env)

    return method


def _layout(question: contiguity.Question) -> Callable[[SymNode, Sequence[SymNode], Sequence[SymNode]], SymNode]:
    def method(self: SymNode, sizes: Sequence[SymNode], strides: Sequence[SymNode]) -> SymNode:
        env = self.shape_env
        return SymNode(question([n.expr for n in sizes], [n.expr for n in strides], env), env)

    return method


def _logical_or_bitwise(
    logical: Callable[..., Expr], bitwise: Callable[[Expr, Expr], Expr]
) -> Callable[[Expr, Expr], Expr]:
    def operation(a: Expr, b: Expr) -> Expr:
        if a.kind is bool and b.kind is bool:
            return logical(a, b)
        return bitwise(floats.to_int(a), floats.to_int(b))

    return operation


_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": x.add,
    "sub": x.sub,
    "mul": x.mul,
    "truediv": floats.truediv,
    "int_truediv": floats.truediv,
    "float_truediv": floats.truediv,
    "pow": powers.power,
    "pow_by_natural": powers.power,
    "float_pow": floats.power,
    "eq": relations.eq,
    "ne": relations.ne,
    "lt": relations.lt,
    "le": relations.le,
    "gt": lambda a, b: relations.lt(b, a),
    "ge": lambda a, b: relations.le(b, a),
    "sym_and": relations.and_,
    "sym_or": relations.or_,
    "and_": _logical_or_bitwise(relations.and_, powers.bit_and),
    "or_": _logical_or_bitwise(relations.or_, powers.bit_or),
    "xor": _logical_or_bitwise(relations.ne, powers.bit_xor),
    "bitwise_and": _logical_or_bitwise(relations.and_, powers.bit_and),
    "bitwise_or": _logical_or_bitwise(relations.or_, powers.bit_or),
    "bitwise_xor": _logical_or_bitwise(relations.ne, powers.bit_xor),
    "lshift": powers.left_shift,
    "rshift": powers.right_shift,
    **{f"sym_{name}": functools.partial(floats.math_call, name) for name, c in floats.MATH.items() if c.arity == 2},
}

_RANGED: dict[str, Callable[[Expr, Expr], Expr]] = {
    "mod": lambda a, b: a % b,
    "floordiv": lambda a, b: a // b,
    "int_floordiv": lambda a, b: a // b,
    "sym_min": extrema.minimum,
    "sym_max": extrema.maximum,
}

_UNARY: dict[str, Callable[[Expr], Expr]] = {
    "neg": x.neg,
    "pos": lambda a: a,
    "sym_not": relations.not_,
    "sym_float": floats.to_float,
    "is_integer": floats.is_integer,
    **{f"sym_{name}": functools.partial(floats.math_call, name) for name, c in floats.MATH.items() if c.arity == 1},
}

_LAYOUTS: tuple[contiguity.Question, ...] = (
    contiguity.is_contiguous,
    contiguity.is_channels_last_contiguous_2d,
    contiguity.is_channels_last_contiguous_3d,
    contiguity.is_channels_last_strides_2d,
    contiguity.is_channels_last_strides_3d,
    contiguity.is_non_overlapping_and_dense,
)

for _name, _function in _BINARY.items():
    setattr(SymNode, _name, _binary(_function))
for _name, _function in _RANGED.items():
    setattr(SymNode, _name, _ranged(_function))
for _name, _one_argument in _UNARY.items():
    setattr(SymNode, _name, _unary(_one_argument))
for _question in _LAYOUTS:
    setattr(SymNode, _question.__name__, _layout(_question))

_WRAPPERS: dict[Any, Callable[[SymNode], Any]] = {int: torch.SymInt, float: torch.SymFloat, bool: torch.SymBool}


def wrap_node(node: SymNode) -> Any:
    """The symbolic number that holds `node`."""
    return _WRAPPERS[node.pytype](node)
