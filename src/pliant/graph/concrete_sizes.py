"""Calls of C++ code that cannot work with symbolic sizes.

In:     a torch-level function and its arguments, fakes and symbols among them.
Out:    its result.
Holds:  sizes become numbers (under guards, each a `Specialization` of the shape environment) only where no other way
        is left: recurrent layers are operators of their own, some functions composed here; others are called as they are, then with torch's Python
        kernels in the place of C++ ones, then with the sizes that C++ asks for, then with plain numbers for arguments,
        too. In code that is not called through
        `call_specialized` (derivative formulas) C++ gets the sizes that it asks for.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from pliant.errors import WantsNumbers
from pliant.graph import given_warnings, recurrent
from pliant.graph.compositions import COMPOSITIONS, composed
from pliant.symbolic.loans import as_argument
from pliant.torch_adapter import OpOverload, python_kernels

_aten = torch.ops.aten
_REFUSALS = ("concrete integers", "SymInt", "SymFloat", "with symbolic sizes/strides")
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class AsksForNumbers(RuntimeError):
    """C++ asked a fake for plain sizes while another way may exist."""


class _Refusing(threading.local):
    active = False


_refusing = _Refusing()


def call_specialized(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`func(*args, **kwargs)`, specialized as little as C++ code allows.

    Compositions in C++ run before any dispatch mode sees them; for many of those with sizes in their arguments
    (`upsample_bilinear2d.vec`) `torch._decomp` registers a Python kernel, which the dispatcher takes while the second
    attempt's guard is held. Holding it always would cost each call some microseconds.
    """
    if isinstance(func, OpOverload):
        args, kwargs = _as_schema_has(func, args, kwargs)
    if func in recurrent.NAMES and (result := recurrent.call(func, args, kwargs)) is not NotImplemented:
        return result
    if func in COMPOSITIONS and (result := composed(func, args, kwargs)) is not NotImplemented:
        return result
    outer, _refusing.active = _refusing.active, True
    told = given_warnings.mark()
    try:
        return func(*args, **kwargs)
    except (RuntimeError, TypeError) as error:
        if not _wants_numbers(error):
            raise
        given_warnings.forget(told)
        try:
            with python_kernels():
                return func(*args, **kwargs)
        except (RuntimeError, TypeError) as again:
            if not _wants_numbers(again):
                raise
            given_warnings.forget(told)
    finally:
        _refusing.active = outer
    return _specialized(func, args, kwargs)


def _as_schema_has(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with what C++ gets for symbolic floats that it takes as plain ones; an operator called by its own name
    would refuse them."""
    if not any(type(one) is torch.SymFloat for one in (*args, *kwargs.values())):
        return args, kwargs
    kinds = {one.name: str(one.type) in ("float", "Optional[float]") for one in func._schema.arguments}
    given = tuple(as_argument(one) if plain else one for one, plain in zip(args, kinds.values()))
    return given, {name: as_argument(one) if kinds.get(name) else one for name, one in kwargs.items()}


def _specialized(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    outer, _refusing.active = _refusing.active, False
    told = given_warnings.mark()
    try:
        return func(*args, **kwargs)
    except (RuntimeError, TypeError) as error:
        if not _wants_numbers(error):
            raise
        given_warnings.forget(told)
        args, kwargs = concrete((args, kwargs))
        return func(*args, **kwargs)
    finally:
        _refusing.active = outer


@contextlib.contextmanager
def as_numbers_wanted() -> Iterator[None]:
    """Inside, code in C++ (a derivative's) that cannot work with symbolic sizes asks for a graph without any."""
    try:
        yield
    except RuntimeError as error:
        if not _wants_numbers(error):
            raise
        raise WantsNumbers(str(error).partition("\n")[0], kind="symbolic-sizes") from error


def _wants_numbers(error: Exception) -> bool:
    return type(error) is AsksForNumbers or any(text in str(error) for text in _REFUSALS)


def concrete(tree: Any) -> Any:
    """The tree with plain numbers for symbolic ones, under guards."""
    return tree_map_only(_SYMBOLIC, _number, tree)


def _number(value: Any) -> int | float | bool:
    return value.node.shape_env.evaluate(value.node.expr)  # type: ignore[no-any-return]


def _sizes(tensor: Any) -> list[int]:
    return _given(tensor, tensor.shape)


def _strides(tensor: Any) -> list[int]:
    return _given(tensor, tensor.stride())


def _given(tensor: Any, values: Any) -> list[int]:
    if _refusing.active:
        raise AsksForNumbers(f"plain numbers for the layout of a tensor {tuple(tensor.shape)} are needed")
    return [int(value) for value in values]


# What C++ dispatches in order to ask a tensor for numbers: pseudo-operators of the language, in no dispatch table.
QUESTIONS: dict[Any, Callable[[Any], list[int]]] = {_aten.size.default: _sizes, _aten.stride.default: _strides}
