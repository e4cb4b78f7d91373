"""Which PyTorch functions are leaves of the captured graph, and how they are called.

Holds:  a leaf is called natively while the recorder is active: it or what it calls is recorded.
"""

from __future__ import annotations

import copy
import dis
import functools
import itertools
import types
from collections.abc import Iterable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak, Raised, needs_value
from pliant.capture.numbers import array_memory
from pliant.capture.numbers.array_memory import refuse_elements
from pliant.capture.numbers.numpy_scalars import plain_number
from pliant.capture.protocols.asked_by_c import ASKED_BY_TORCH, ASKED_BY_TORCH_IN_PYTHON, refuse_own, within
from pliant.capture.protocols.operators import python_method
from pliant.capture.protocols.subscripts import known_items, refuse_own_items
from pliant.capture.recording.overrides import note_disabled
from pliant.capture.recording.regions import asks_grad_mode
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import is_several, leaves, mapped
from pliant.capture.value_kinds import (
    COMPARED_IN_C,
    concrete,
    is_builtin,
    is_function,
    is_numpy_scalar,
    is_same_constant,
    is_tensor,
    module_of,
    plain_text,
    varying,
)
from pliant.errors import ConstraintError, DataDependentError, Unsupported
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.given_warnings import collected
from pliant.graph.torch_functions import READS, is_known
from pliant.guards.facts import is_native_enum
from pliant.guards.kinds import Kind
from pliant.guards.sources import question
from pliant.guards.standard import standard_module
from pliant.interruptions import pass_on
from pliant.regular import pattern
from pliant.torch_adapter import (
    C_NN,
    OVERRIDABLE_MODULES,
    OVERRIDE_TESTS,
    TRANSFORMS_IN_C,
    count_function_modes,
    has_torch_function,
)

# Python functions of these modules are called as they are: each asks the active torch function mode first, or is made of such calls.
_LEAF_MODULES = frozenset(
    (
        "torch.nn.functional", "torch.functional", "torch.special", "torch.linalg", "torch.fft", C_NN,
        *OVERRIDABLE_MODULES,
    )
)
_OVERRIDABLE_MARKS = frozenset(("handle_torch_function", "has_torch_function"))


@functools.lru_cache(maxsize=4096)
def _leaf_code(code: types.CodeType, module: str) -> bool:
    asks_modes = bool(_OVERRIDABLE_MARKS & set(code.co_names))
    if asks_modes and _untold_to_modes(code):
        return False
    return module in _LEAF_MODULES or (
        asks_modes and module.startswith("torch.") and not module.startswith("torch.nn.modules")
    )


def _untold_to_modes(code: types.CodeType) -> set[str]:
    """Parameters that a function does not hand on where it asks function modes: `weight` of `F.l1_loss` is one. The first
    of `handle_torch_function(function, (values that may have an override), *arguments)` does not count."""
    loaded: list[str] = []
    unpacks = False
    steps = itertools.dropwhile(lambda step: step.argval != "handle_torch_function", dis.get_instructions(code))
    for step in itertools.takewhile(lambda step: not step.opname.startswith("RETURN"), steps):
        if step.opname.startswith("LOAD"):
            loaded.extend(step.argval if isinstance(step.argval, tuple) else (str(step.argval),))
        elif step.opname == "BUILD_TUPLE" and step.arg == len(loaded) - 2:
            del loaded[2:]
        elif step.opname == "DICT_MERGE":
            return set()  # arguments by names that are not seen
        unpacks |= step.opname == "LIST_EXTEND"
    named = range(code.co_argcount if unpacks else 0, code.co_argcount + code.co_kwonlyargcount)
    return {code.co_varnames[k] for k in named}.difference(loaded) if loaded else set()


def is_torch_leaf(function: types.FunctionType) -> bool:
    """Whether a Python function of PyTorch is called natively instead of being interpreted."""
    module = module_of(function)
    return module.startswith("torch") and _leaf_code(function.__code__, module) and not _is_replaced(function)


def _is_replaced(function: types.FunctionType) -> bool:
    """Whether the program has put a function of its own in its place: that is what it says is called, by that name."""
    found = function.__globals__.get(function.__name__, function)
    return is_function(found) and not standard_module(module_of(found))


# C functions of torch that change a setting. Those that the graph records have handlers of their own.
_SETTER = pattern(
    r"^_*(set|push|pop|enter|exit|enable|disable|increment|decrement|unset|begin|end|start|stop)_"
    r"|^_saved_tensors_hooks_(enable|disable)|autocast_cache$|_nesting$"
)


def _changes_setting(function: Any) -> bool:
    if not is_builtin(function) or is_tensor(function.__self__):
        return False
    is_of_transforms = function.__module__ == TRANSFORMS_IN_C  # their stack
    return is_of_transforms or _SETTER.match(function.__name__) is not None


def _keeps_setting(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> bool:
    """Whether a setting is given the value that it has, which is guarded."""
    name = function.__name__
    getter = getattr(function.__self__, name.replace("set_", "get_", 1), None) if "set_" in name[:5] else None
    if getter is None or kwargs or len(args) != 1 or type(args[0]) not in (bool, int, str):
        return False
    keeps = t.settings.is_read(getter, (), args[0]) is None and is_same_constant(getter(), args[0])
    if keeps:
        t.world.guard(question(getter), Kind.EQUALS, args[0])
    return keeps


def _name_of(function: Any) -> str:
    return f"{getattr(function, '__module__', None) or 'torch.Tensor'}.{function.__name__}"


def _is_overridden(t: Tracer, values: Iterable[Any]) -> bool:
    """What `has_torch_function` says without the mode that records."""
    if count_function_modes() > 1 or t.overrides.modes:
        return True
    if found := bool(t.overrides.overloaded(tuple(values), {})):
        note_disabled(t)
    return found


# Functions of symbolic truths. All others want a flag: its truth is guarded, and the sizes that it is of may vary.
_TAKE_TRUTHS = frozenset((torch.sym_not, torch.sym_ite))


def _plain(value: Any) -> Any:
    """Text, and a truth that the sizes at hand tell, as Python has them."""
    kind = varying(value)
    if kind is str or (kind is bool and value.node.has_hint()):
        return concrete(value)
    return value


_TAKE_SEQUENCES = frozenset(("tensor", "as_tensor", "asarray", "new_tensor"))  # of any class that has items
_MAKE_TENSORS = (torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy)


_NO_OBJECTS = COMPARED_IN_C | {FakeTensor, torch.SymInt}


def _as_c_reads_it(t: Tracer, function: Any, value: Any) -> Any:
    """C code reads what a list holds, whatever methods its class has; Python code calls these."""
    if type(value) in _NO_OBJECTS or array_memory.is_array(value):
        return value
    if getattr(function, "__name__", None) in _TAKE_SEQUENCES:
        refuse_own_items(t, value)
    known = known_items(t, plain_text(value))
    if known is not value and is_function(function):
        if any(python_method(t, value, name) is not None for name in ("__iter__", "__getitem__")):
            raise GraphBreak("unknown-object", f"{function.__name__} of a {type(value).__name__} with items of its own")
    return known


def _is_in_python(function: Any) -> bool:
    """Whether it is PyTorch's own code in Python."""
    return is_function(function) and str(function.__module__).startswith("torch.")


def call_torch(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Call a PyTorch function on traced values. Errors of shapes or types are left to eager, which words them."""
    if _changes_setting(function):
        if _keeps_setting(t, function, args, kwargs):
            return None
        raise GraphBreak("mutated-global-state", f"a call of {function.__module__}.{function.__name__}")
    if not is_known(function):
        raise GraphBreak("unknown-call", f"the C function {_name_of(function)}")
    if function not in _TAKE_TRUTHS:
        args = tuple(_plain(a) for a in args)
        kwargs = {k: _plain(v) for k, v in kwargs.items()}
    refuse_own(t, function, within((*args, *kwargs.values())), ASKED_BY_TORCH_IN_PYTHON if _is_in_python(function) else ASKED_BY_TORCH)
    reads = functools.partial(_as_c_reads_it, t, function)
    makes = function in _MAKE_TENSORS  # others take scalars of NumPy for numbers
    args, kwargs = mapped(t.internalize((args, dict(kwargs))), reads if makes else lambda one: mapped(reads(one), plain_number))
    if makes and args and is_numpy_scalar(args[0]) and "dtype" not in kwargs and hasattr(torch, args[0].dtype.name):
        kwargs["dtype"] = getattr(torch, args[0].dtype.name)
        args = (args[0].item(), *args[1:])
    elif makes and args and is_several(args[0]) and any(is_numpy_scalar(v) or array_memory.is_array(v) for v in leaves(args[0])):
        raise GraphBreak("unknown-call", f"{function.__name__} of scalars of NumPy in a {type(args[0]).__name__}")
    refuse_elements(t, args, kwargs)
    if any(map(array_memory.is_array, args)):
        return array_memory.to_tensor(t, function, args, kwargs)
    if function in OVERRIDE_TESTS:
        return _is_overridden(t, args[0] if function is has_torch_function else args)
    try:
        return _noted(t, function, args, _called(t, function, args, kwargs))
    except DataDependentError as error:
        raise needs_value(error) from None
    except Unsupported as error:
        raise GraphBreak("unsupported-operator", str(error).splitlines()[0]) from None
    except (Raised, ConstraintError):
        raise
    except Exception as error:
        pass_on(error)
        raise t.tensor_error(error, function, args, kwargs) from error


def _called(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    if getattr(function, "__name__", None) in READS:  # among them what holds for warnings
        return function(*args, **kwargs)
    with collected() as told:
        answer = function(*args, **kwargs)
    if told:
        t.recorder.warned(told)
    return answer


# Every entry depends on these; or the capture itself changes them.
_AMBIENT = pattern(r"inference_mode|is_grad_enabled|autocast(_cpu|_gpu)?_enabled|torch_function|tracing|functorch")
_OLD_NAMES = {
    torch.get_autocast_cpu_dtype: (torch.get_autocast_dtype, "cpu"),
    torch.get_autocast_gpu_dtype: (torch.get_autocast_dtype, "cuda"),
}


def _noted(t: Tracer, function: Any, args: tuple[Any, ...], answer: Any) -> Any:
    """The answer of a C function; guarded if it tells a setting of PyTorch, unless the trace gave it this value."""
    if _asks(function, args) and _is_constant(answer):
        asked, *key = _OLD_NAMES.get(function, (function, *args))
        if t.settings.is_read(asked, tuple(key), answer) is not False:
            t.world.guard(question(asked, *key), Kind.EQUALS, copy.copy(answer))
    elif function is torch.is_grad_enabled:
        asks_grad_mode(t, answer, question(function))
    return answer


def _asks(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether a call is a question about a setting, which no guard fixes anyway."""
    if not is_builtin(function) or not {bool, int, str}.issuperset(map(type, args)):
        return False
    owner = type(function.__self__)
    known = owner in (types.ModuleType, type(None)) or owner.__name__.startswith(("pybind11_detail", "PyCapsule"))
    return known and function.__name__ in READS and not _AMBIENT.search(function.__name__)


def _is_constant(answer: Any) -> bool:
    return all(is_native_enum(cls) or cls in COMPARED_IN_C for cls in map(type, leaves(answer)))
