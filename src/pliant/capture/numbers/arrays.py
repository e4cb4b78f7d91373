"""NumPy arrays in a traced program: tensors in the graph.

In:     arrays from outside, `tensor.numpy()`, calls of NumPy's functions and of methods of arrays.
Out:    arrays of PyTorch's own NumPy over (fake) tensors, whose operations are recorded.
Holds:  an array and the tensor under it share memory, as NumPy's and PyTorch's do. What NumPy would give as a scalar is a
        `Scalar` here, and leaves the trace as NumPy's scalar. What PyTorch's arrays do not do as NumPy's is a break.
"""

from __future__ import annotations

import functools
import sys
import types
import warnings
from collections.abc import Iterable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.numbers import numpy_scalars
from pliant.capture.numbers.array_memory import dtype_of, is_array, to_array, wrap
from pliant.capture.numbers.given_numbers import refuse_many
from pliant.capture.numbers.made_arrays import ONES, in_graph, of_varying, that_fit
from pliant.capture.numbers.numpy_rules import check_bits, corrected, interp, plain_kind
from pliant.capture.numbers.numpy_scalars import all_fixed, are_scalars, is_scalar, plain_number, wrap_scalar
from pliant.capture.recording.stand_ins import StandIn, check_layout, memory_of
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import as_tuple, is_list_or_tuple, leaves, mapped
from pliant.capture.trace import BreakReason
from pliant.capture.value_kinds import (
    class_in_numpy,
    derives,
    is_class,
    is_function,
    is_numpy_array,
    is_numpy_number,
    is_numpy_scalar,
    is_slice,
    is_symbolic,
    misused,
    plain_class,
    varying,
)
from pliant.errors import DataDependentError
from pliant.graph.fake_tensor import is_fake
from pliant.graph.tensor_index import NOTHING_LEFT, select_symbolic
from pliant.guards.kinds import Kind
from pliant.guards.sources import question
from pliant.interruptions import pass_on
from pliant.torch_adapter import DisableTorchFunction, below_python_dispatch, numpy_on_tensors

# ---- attributes
_PLAIN = frozenset(("shape", "ndim", "size", "itemsize", "T", "real", "imag", "strides"))
_METHODS = frozenset(
    """all any argmax argmin argsort astype clip conj conjugate copy cumprod cumsum diagonal dot fill flatten item max
    mean min nonzero prod ravel repeat reshape round searchsorted squeeze std sum swapaxes take tolist trace transpose
    var sort""".split()
)


def array_attribute(t: Tracer, array: Any, name: str) -> Any:
    if name == "dtype":
        return dtype_of(array)
    if name == "__class__":
        return class_in_numpy(array)
    if name == "nbytes":
        return array.size * array.itemsize
    if name == "strides":
        check_layout(t, array.tensor)
    if name in _PLAIN:
        found = t.native(getattr, array, name)
        return wrap_scalar(found.tensor) if is_scalar(array) and is_array(found) else found
    if name.startswith("__") and not hasattr(class_in_numpy(array), name):
        raise misused(array, "'{}' object has no attribute " + f"'{name}'", AttributeError)
    if name in _METHODS or name.startswith("__") and is_function(getattr(type(array), name, None)):
        return types.MethodType(getattr(type(array), name), array)
    raise GraphBreak("unknown-object", f"the attribute {name} of an array")


# ---- operands
def beside_tensor(t: Tracer, symbol: str, left: Any, right: Any) -> tuple[Any, Any]:
    """Operands of which one may be an array and the other a tensor: a scalar counts as its number. Of an array at the
    right of a tensor NumPy computes, by its own rules for types: as tensors do where all are of one type."""
    if is_fake(left) and is_array(right):
        if is_scalar(right):
            return left, _item(t, right)
        alike = left.dtype == right.tensor.dtype and left.dtype.is_floating_point and not left.requires_grad
        if symbol not in _AS_TENSORS or not alike:
            raise GraphBreak("tensor-error", "a tensor with an array at its right")
        return left, right.tensor
    if is_fake(right) and is_array(left):
        if not is_scalar(left):
            raise GraphBreak("tensor-error", "an array with a tensor at its right")
        return _item(t, left), right
    return left, right


_AS_TENSORS = frozenset("+-*/")  # comparisons fail in NumPy; in place, it makes another tensor


def beside_symbol(t: Tracer, left: Any, right: Any) -> tuple[Any, Any]:
    """Operands of which one may be a fixed scalar of NumPy and the other a symbolic number: NumPy's types decide about
    the result, so the scalar computes in the graph, or the number is fixed too."""
    if is_symbolic(left) and is_numpy_scalar(right):
        return numpy_scalars.to_symbol(t, left, right)
    if is_symbolic(right) and is_numpy_scalar(left):
        return numpy_scalars.to_symbol(t, right, left)[::-1]
    return left, right


def _item(t: Tracer, scalar: Any) -> Any:
    return t.call(torch.Tensor.item, (scalar.tensor,), {}) if scalar.number is None else scalar.number


# ---- calls
def find(function: types.FunctionType) -> Any:
    """How PyTorch's arrays are computed with: they are not interpreted."""
    return _call_method


_TEXTS = {"__str__": str, "__repr__": repr}


def _call_method(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A method of an array."""
    if not args or not is_array(args[0]):
        raise GraphBreak("unknown-call", f"numpy.{function.__name__}")
    name = _method_name(type(args[0]), function)
    if name in _TEXTS and len(args) == 1:
        return t.call(_TEXTS[name], args, kwargs)
    if name == "__getitem__" and any(_is_backwards(part) for part in as_tuple(args[1])):
        return _turned(t, args[0], args[1])
    if name in ("__getitem__", "__setitem__") and _has_varying_position(args[1]):
        return _at_varying_position(t, function, *args)
    if name == "__iter__" and args[0].ndim == 0:
        return t.native(iter, _stand_in(t, args[0]))  # which complains
    if name == "__iter__":
        return iter([_call_method(t, type(args[0]).__getitem__, (args[0], i), {}) for i in range(len(args[0]))])
    owner = type(_stand_in(t, args[0]))
    if not hasattr(owner, name) and hasattr(owner, f"__{name[3:]}"):  # in place: scalars do not change
        name = f"__{name[3:]}"
        function = getattr(type(args[0]), name)
    asked = name == "item" or name == "__index__" and "int" in str(args[0].tensor.dtype)
    if asked and not args[1:] and plain_number(args[0]) is not args[0]:
        return args[0].number
    if is_scalar(args[0]) and numpy_scalars.by_numpy(name, args):
        return computed_by_numpy(t, getattr(owner, name), all_fixed(args), {})
    result = _call(t, function, getattr(owner, name, None), numpy_scalars.of_one_type(args), kwargs)
    if is_scalar(result):
        known = name == "__getitem__"  # which is for the number
        result.number = t.recorder.elements.number(result.tensor, ask=False) if known else numpy_scalars.number_of(name, args)
    return result


def _method_name(cls: Any, function: Any) -> str:
    """Under which name the class has it: `conjugate` is a function with the name of an operator."""
    own: str = function.__name__
    return own if hasattr(cls, own) else next((n for n in _METHODS if getattr(cls, n, None) is function), own)


def call_numpy(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A function of NumPy by its namesake for tensors; NotImplemented if there is none."""
    namesake = _namesakes().get(id(function))
    if namesake is None:
        return NotImplemented
    args = in_graph(t, function, args)
    if are_scalars(args) and all(plain_number(a) is not a for a in args if is_scalar(a)) and not kwargs:
        refuse_many(t, function, args, kwargs)
        return computed_by_numpy(t, function, all_fixed(args), {})  # to the last digit
    name = getattr(function, "__name__", "")
    if any(map(is_fake, args)) and name not in _MAKERS:
        raise GraphBreak("unknown-call", f"numpy.{name} of a tensor")
    if name in _MAKERS and set(kwargs) <= {"dtype"} and args and not is_array(args[0]):
        return _from_data(t, *map(t.internalize, args), **kwargs)
    result = _call(t, namesake, function, args, kwargs)
    if name in _VIEWS and is_array(result):
        return _in_place_of_a_view(t, result, f"numpy.{name}", *filter(is_array, leaves(args, kwargs)))
    turned = name == "ascontiguousarray" and is_array(args[0]) and _is_turned(t, args[0])
    return _copied(t, result) if turned and is_array(result) and not is_scalar(result) else result


_MAKERS = ("array", "asarray", "asanyarray")


def makes_array(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> bool:
    """Whether NumPy makes an array of numbers alone, some of which are symbols."""
    given = [*leaves(args, kwargs)]
    if not any(map(is_symbolic, given)) or any(is_array(one) or is_fake(one) for one in given):
        return False
    if not (getattr(function, "__module__", None) or "").startswith("numpy"):
        return False
    dummies, named = mapped((list(args), dict(kwargs)), lambda value: _stand_in(t, value))
    try:
        return is_numpy_array(function(*dummies, **named))
    except Exception as error:  # which the call itself will meet
        pass_on(error)
        return False


# Where NumPy and its namesake for tensors differ in whether the result is the argument's memory.
_VIEWS = frozenset(("flip", "flipud", "fliplr", "rot90", "diag"))  # in NumPy, and copies for tensors


def _with_own_memory(t: Tracer, result: Any, expected: Any, args: Any, dummies: Any) -> Any:
    """A result in memory of its own where NumPy's is: the namesake for tensors may give a view, or its argument."""
    if not is_array(result):
        return result
    memory = memory_of(result.tensor)
    if not any(is_array(one) and memory_of(one.tensor) is memory for one in leaves(args)):
        return result
    numpy = sys.modules["numpy"]
    if any(is_numpy_array(one) and numpy.may_share_memory(expected, one) for one in leaves(dummies)):
        return result
    return wrap_scalar(result.tensor.clone()) if is_scalar(result) else _copied(t, result)


def _copied(t: Tracer, array: Any) -> Any:
    return t.call(array_attribute(t, array, "copy"), (), {})


# Universal function -> what reduces with it, and what accumulates.
_FOLDS: dict[str, tuple[str, str]] = {
    "add": ("sum", "cumsum"), "multiply": ("prod", "cumprod"), "maximum": ("max", ""), "minimum": ("min", ""),
    "logical_and": ("all", ""), "logical_or": ("any", ""),
}  # fmt: skip


def call_ufunc_method(t: Tracer, ufunc: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """np.add.reduce(a), np.multiply.outer(a, b) and their like."""
    ours, real = numpy_on_tensors(), getattr(ufunc, name)
    if name == "outer":
        return _call(t, functools.partial(_outer, getattr(ours, ufunc.__name__, None)), real, args, kwargs)
    folds = dict(zip(("reduce", "accumulate"), _FOLDS.get(ufunc.__name__, ())))
    if not folds.get(name):
        raise GraphBreak("unknown-call", f"numpy.{ufunc.__name__}.{name}")
    fold = corrected(getattr(ours, folds[name]), getattr(sys.modules["numpy"], folds[name]))
    return _call(t, functools.partial(_along_first, fold), real, args, kwargs)


def _along_first(fold: Any, array: Any, axis: Any = 0, dtype: Any = None, **kwargs: Any) -> Any:
    return fold(array, axis=axis, **({} if dtype is None else {"dtype": dtype}), **kwargs)


def _outer(function: Any, a: Any, b: Any) -> Any:
    return function(a.reshape(*a.shape, *[1] * b.ndim), b)


def _from_data(t: Tracer, data: Any, dtype: Any = None) -> Any:
    """An array of numbers or of a tensor, or of arrays that are put together."""
    numpy = sys.modules["numpy"]
    given = _given(t, data)
    if is_list_or_tuple(given) and given and all(map(is_array, given)):
        return call_numpy(t, numpy.stack, (given,), {} if dtype is None else {"dtype": dtype, "casting": "unsafe"})
    if is_array(given):
        return given if dtype is None else t.call(array_attribute(t, given, "astype"), (dtype,), {"copy": False})
    made = of_varying(t, given, dtype)
    return constant_array(t, t.native(numpy.array, t.concrete_tree(data), dtype=dtype)) if made is None else made


def constant_array(t: Tracer, real: Any) -> Any:
    """An array whose elements are known."""
    if real.dtype.kind not in "biufc" or real.size > _MANY:
        raise GraphBreak("unknown-call", f"an array of {real.size} constants of type {real.dtype}")
    dtype = getattr(torch, real.dtype.name)
    if not real.size:  # a list of nothing does not say all sizes
        return wrap(t.call(torch.empty, (real.shape,), {"dtype": dtype}))
    return wrap(t.call(torch.tensor, (real.tolist(),), {"dtype": dtype}))


_MANY = 1024


def _call(t: Tracer, function: Any, real: Any, args: Args, kwargs: Kwargs) -> Any:
    """The function for tensors; what it returns is what NumPy's own returns for arrays of these kinds."""
    name = getattr(function, "__name__", "")
    kwargs = {k: v for k, v in kwargs.items() if v is not None or k not in ("device", "like", "subok")}
    args, named = that_fit(name, _given(t, args), _given(t, kwargs))
    dummies, named_dummies = mapped((list(args), named), lambda value: _stand_in(t, value))
    check_float_errors(t, name, *args)
    try:
        with warnings.catch_warnings(), below_python_dispatch(), DisableTorchFunction():
            warnings.simplefilter("ignore")
            expected = real(*dummies, **named_dummies)
        result = corrected(function, real)(*mapped(args, _to_ours), **mapped(named, _to_ours))
        is_float = is_array(result) and result.tensor.is_floating_point()
        if is_float and dtype_of(result).itemsize < expected.dtype.itemsize:  # NumPy computes with integers in double precision
            args = tuple(_call_method(t, type(a).astype, (a, expected.dtype), {}) if is_array(a) else a for a in args)
            result = corrected(function, real)(*mapped(args, _to_ours), **mapped(named, _to_ours))
    except (GraphBreak, DataDependentError):
        raise
    except Exception as error:
        pass_on(error)
        raise GraphBreak("tensor-error", f"numpy.{name}: {type(error).__name__}: {error}") from error
    check_float_errors(t, name, expected)
    if is_numpy_array(expected) and all(map(_is_known, leaves(args, named))):
        return constant_array(t, expected)
    check_bits(name, expected)
    for dummy, argument in zip(dummies, args):
        if expected is dummy and is_array(argument) and not is_scalar(argument):  # there is one np.True_ for all results
            return argument
    result = _reconciled(result, expected, name)
    return _with_own_memory(t, result, expected, (args, named), (dummies, named_dummies))


def check_float_errors(t: Tracer, name: str, *values: Any) -> None:
    """A graph divides by zero without a word: break where the program asked that NumPy raises or tells such errors. `values`:
    what is computed with, and what comes out, if that is known yet."""
    told = float_errors_are_told()
    if told or not {_kind_of(value) for value in leaves(*values)}.isdisjoint("fc"):
        t.world.guard(question(float_errors_are_told), Kind.EQUALS, told)
    if told:
        raise GraphBreak("side-effect-call", f"numpy.{name}, whose floating-point errors `np.errstate` has raised or told")


def computed_by_numpy(t: Tracer, function: Any, args: Iterable[Any], kwargs: Kwargs) -> Any:
    """What NumPy's own function gives, which serves all calls."""
    name = getattr(function, "__name__", "")
    check_float_errors(t, name)
    result = t.native(function, *args, **kwargs)
    check_float_errors(t, name, result)
    return result


def _kind_of(value: Any) -> str:
    return str(dtype_of(value).kind) if is_array(value) else plain_kind(value)


def float_errors_are_told() -> bool:
    """Whether NumPy does more of floating-point errors than to warn."""
    return not {"warn", "ignore"}.issuperset(list(sys.modules["numpy"].geterr().values()))


def _is_known(value: Any) -> bool:
    """Whether an argument is the same in each call that the graph serves."""
    return not is_array(value) and not is_symbolic(value)


def _stand_in(t: Tracer, value: Any) -> Any:
    """A real array of the same kind and size, of ones."""
    if is_symbolic(value):
        hint = t.shape_env.hint(t.shape_env.expr_of(value))
        return ONES[varying(value)] if hint is None else hint
    if is_array(value):
        numpy = sys.modules["numpy"]
        ones = numpy.ones([_stand_in(t, n) for n in value.tensor.size_], dtype_of(value))
        if ones.ndim > 1 and ones.dtype.kind in "fc":
            ones = ones + 2 * numpy.eye(*ones.shape[-2:], dtype=ones.dtype)  # which is not singular
        return ones[()] if is_scalar(value) else ones
    return value


def _reconciled(result: Any, expected: Any, name: str) -> Any:
    """The result in the form in which NumPy gives it."""
    if is_array(result) and (is_numpy_array(expected) or is_numpy_number(expected)):
        if dtype_of(result).itemsize > expected.dtype.itemsize and dtype_of(result).kind == expected.dtype.kind:
            result = wrap(result.tensor.to(getattr(torch, expected.dtype.name)))
        if dtype_of(result) == expected.dtype and result.tensor.dim() == expected.ndim:
            tensor = result.tensor.resolve_conj().resolve_neg()  # which arrays cannot show
            return wrap(tensor) if is_numpy_array(expected) else wrap_scalar(tensor)
    elif {type(expected), type(result)} <= {list, tuple} and len(result) == len(expected):
        return type(expected)(_reconciled(a, b, name) for a, b in zip(result, expected))
    elif plain_class(result) is type(expected):
        return result
    raise GraphBreak("unknown-call", f"numpy.{name}, which gives something else for tensors")


def _given(t: Tracer, value: Any) -> Any:
    """Arguments without what is outside."""
    return mapped(t.internalize(value), lambda one: _given_one(t, one))


def _given_one(t: Tracer, value: Any) -> Any:
    value = t.internalize(value)
    if is_fake(value):
        return to_array(t, value)
    if is_class(value) or is_array(value) or is_numpy_scalar(value):
        return value
    if is_function(value) or t.world.is_opaque(value):
        raise GraphBreak("unknown-call", f"NumPy with a {type(value).__name__}")
    return value


def _to_ours(value: Any) -> Any:
    """An argument as PyTorch's arrays want it."""
    numpy, ours = sys.modules["numpy"], numpy_on_tensors()
    if isinstance(value, numpy.dtype) or derives(value, numpy.generic):
        return getattr(ours, numpy.dtype(value).name)
    if is_numpy_number(value):
        return ours.asarray(value.item(), dtype=getattr(ours, value.dtype.name))
    return value


# ---- views that no tensor can be
def _is_backwards(part: Any) -> bool:
    return is_slice(part) and part.step is not None and part.step < 0


def _turned(t: Tracer, array: Any, index: Any) -> Any:
    """array[index] with slices of negative steps: the elements forwards, then turned round."""
    parts = as_tuple(index)
    if not _PARTS.issuperset(map(plain_class, parts)):
        raise GraphBreak("unknown-call", "an index of an array with a negative step and other arrays")
    taken = _call_method(t, type(array).__getitem__, (array, tuple(map(_forwards, parts))), {})
    count = sum(part is not None and part is not Ellipsis for part in parts)
    dim, dims, steps = 0, [], [slice(None)] * taken.ndim
    for part in parts:
        if _is_backwards(part):
            dims.append(dim)
            steps[dim] = slice(None, None, -part.step)
        dim += array.ndim - count if part is Ellipsis else plain_class(part) is not int
    result = wrap(t.subscript(t.call(torch.flip, (taken.tensor, dims), {}), tuple(steps)))
    return _in_place_of_a_view(t, result, "a slice of an array with a negative step", array)


_PARTS = frozenset((int, slice, type(None), type(...)))


def _forwards(part: Any) -> Any:
    """The slice of the same elements, and those between, in the order of the array."""
    if not _is_backwards(part):
        return part
    if part.stop is not None and part.stop == -1:
        return slice(0, 0)
    low = None if part.stop is None else part.stop + 1
    return slice(low, None if part.start is None or part.start == -1 else part.start + 1)


def _has_varying_position(index: Any) -> bool:
    """Whether it is of integers, slices and the like alone, and an integer varies."""
    parts = as_tuple(index)
    return any(varying(part) is int for part in parts) and all(
        varying(part) is int or plain_class(part) in _PARTS for part in parts
    )


def _at_varying_position(t: Tracer, function: Any, array: Any, index: Any, *value: Any) -> Any:
    """array[index], or a store there, as of tensors: PyTorch's arrays fix what varies. An element is a scalar in NumPy."""
    view, rest = t.native(select_symbolic, array.tensor, index)
    rest = ... if rest is NOTHING_LEFT else rest
    if value:
        return _call_method(t, function, (wrap(view), rest, *value), {})
    made = t.subscript(view, rest)
    if made.dim() or any(part is Ellipsis for part in as_tuple(index)):
        return wrap(made)
    return wrap_scalar(made, t.recorder.elements.number(made, ask=False))


def _is_turned(t: Tracer, array: Any) -> bool:
    """Whether the array is certain not to lie in memory as it is indexed."""
    turned = any(one.alone and one.made is array.tensor for one in t.stand_ins)
    return turned and all(n > 1 for n in array.tensor.size_)


def _in_place_of_a_view(t: Tracer, result: Any, what: str, *arrays: Any) -> Any:
    """A result that is new memory here, and a view of the arrays in NumPy, perhaps one with negative strides."""
    why = BreakReason("unknown-call", f"{what}, whose result is a view", t.location())
    step, of = t.frames[-1].steps_at_op, tuple([array.tensor for array in arrays])
    t.stand_ins.append(StandIn(step, why, result.tensor, of, alone=True))
    return result


@functools.cache
def _namesakes() -> dict[int, Any]:
    """By the identity of NumPy's functions: those of PyTorch's arrays."""
    found: dict[int, Any] = {}
    for ours, theirs in (
        (numpy_on_tensors(), sys.modules["numpy"]),
        (numpy_on_tensors().linalg, sys.modules["numpy"].linalg),
        (numpy_on_tensors().fft, sys.modules["numpy"].fft),
    ):
        for name in dir(ours):
            function, namesake = getattr(theirs, name, None), getattr(ours, name)
            if callable(function) and not is_class(function) and is_function(namesake):
                found[id(function)] = namesake
    found[id(sys.modules["numpy"].interp)] = interp
    found[id(sys.modules["numpy"].asanyarray)] = numpy_on_tensors().asarray  # no array of the trace is of a subclass
    return found
