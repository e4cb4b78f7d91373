"""Methods of the program that C code may run during a trace: they only compare and hash constants.

In:     an object that is to be a key, or an element that is compared.
Out:    whether its `__hash__` and `__eq__` compute from constants in its attributes alone.
Holds:  what such methods read of objects and globals from outside is guarded. All others run in the interpreter.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any

from pliant.capture.bytecode.decode import decode
from pliant.capture.graph_breaks import Raised
from pliant.capture.protocols import operators
from pliant.capture.protocols.module_attributes import builtins_of
from pliant.capture.signatures import Tracer
from pliant.capture.structures import consists_of
from pliant.capture.value_kinds import CONSTANTS, PLAIN_TYPES, is_class
from pliant.guards.kinds import MISSING
from pliant.unpatched import BUILTINS

_OPERATIONS = frozenset(
    """LOAD_FAST LOAD_CONST LOAD_GLOBAL LOAD_DEREF LOAD_ATTR PUSH_NULL CALL COMPARE_OP IS_OP CONTAINS_OP BUILD_TUPLE
    POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP
    JUMP COPY SWAP POP_TOP TO_BOOL UNARY_NOT RETURN_VALUE COPY_FREE_VARS BINARY_OP""".split()
)
_FUNCTIONS = (BUILTINS.hash, BUILTINS.isinstance, type, BUILTINS.len, NotImplemented)


def computes_plainly(t: Tracer, obj: Any) -> bool:
    """Whether C code may hash and compare the object."""
    for name in ("__hash__", "__eq__"):
        method = operators.python_method(t, obj, name)
        if method is None:
            continue
        attributes = _attributes_read(method.__code__)
        if attributes is None or not _known_names(t, method) or not all(_is_constant(t, obj, a) for a in attributes):
            return False
    return True


@functools.lru_cache(maxsize=1024)
def _attributes_read(code: types.CodeType) -> frozenset[str] | None:
    """The names of attributes that the code reads, if it does nothing but read, compare and call what is named."""
    ops = decode(code).ops
    if code.co_flags & 0x2A0 or not all(op.name in _OPERATIONS for op in ops):  # no generators, no coroutines
        return None
    return frozenset(str(op.arg) for op in ops if op.name == "LOAD_ATTR")


def _known_names(t: Tracer, method: types.FunctionType) -> bool:
    """Whether globals and cells that the method names are classes, or functions that have no effect."""
    code, space = method.__code__, method.__globals__
    names = {str(op.arg) for op in decode(code).ops if op.name == "LOAD_GLOBAL"}
    t.world.hold(space, str(space.get("__name__")))
    found = [t.world.dict_get(space, n) if n in space else builtins_of(space).get(n, MISSING) for n in names]
    found += [t.world.cell_get(cell) for cell in method.__closure__ or ()]
    return all(is_class(v) or any(v is f for f in _FUNCTIONS) for v in found)


def _is_constant(t: Tracer, obj: Any, name: str) -> bool:
    """Whether the attribute is a constant that C code may see; one from outside is guarded."""
    if name == "__class__":
        return True
    if t.world.is_foreign(obj) and t.world.has_changes(t.world.instance_dict(obj)):
        return False
    if isinstance(t.world.type_lookup(type(obj), name), (types.FunctionType, property)):
        return False
    try:
        value = t.get_attr(obj, name)
    except Raised:
        return False
    return is_class(value) or consists_of(fixed_field(t, obj, name) if type(value) in _FIXED else value, _PLAIN)


_FIXED = (*PLAIN_TYPES, tuple)
_PLAIN = CONSTANTS | {type}


def fixed_field(t: Tracer, obj: Any, name: str) -> Any:
    """What C code reads to hash the object: a number that varies is concrete from now on."""
    value = t.get_attr(obj, name)
    fixed = t.hashable(value)
    if fixed is not value and not t.world.is_foreign(obj):
        object.__setattr__(obj, name, fixed)
    return fixed


def is_generated(method: types.FunctionType, cls: type) -> bool:
    """Whether the class' way to hash or compare was written by dataclasses or PyTorch: it reads only its own fields."""
    if cls.__module__.partition(".")[0] in ("torch", "enum", "collections"):
        return True
    return hasattr(cls, "__dataclass_fields__") and method.__code__.co_filename == "<string>"


def fields_compared(cls: type) -> list[str]:
    """What the hash and the comparison that a dataclass wrote read."""
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return [one.name for one in fields if one.compare or one.hash]


