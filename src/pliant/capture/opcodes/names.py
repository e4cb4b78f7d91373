"""Loads and stores of names: locals, globals, cells, class bodies; and the shuffling of the stack."""

from __future__ import annotations

import functools
import importlib
import operator
import sys
import types
from typing import Any, NoReturn

from pliant.bytecode.decode import Op
from pliant.capture.frame import Frame, Handlers
from pliant.capture.graph_breaks import GraphBreak, NoAttribute, Raised, StartAgain
from pliant.capture.protocols.module_attributes import builtins_of
from pliant.capture.signatures import Tracer
from pliant.capture.trace import DELETED, NULL
from pliant.capture.value_kinds import is_cell
from pliant.guards.kinds import MISSING
from pliant.interruptions import suppressed
from pliant.unpatched import BUILTINS, IN_CODE

ROWS = Handlers()
opcode = ROWS.row


@opcode("SETUP_ANNOTATIONS")
def setup_annotations(frame: Frame, op: Op) -> None:
    if frame.class_locals is None:
        raise GraphBreak("unsupported-opcode", "module-level code")
    frame.class_locals.setdefault("__annotations__", {})


@opcode("SWAP")
def swap(frame: Frame, op: Op) -> None:
    stack, depth = frame.stack, op.arg
    stack[-1], stack[-depth] = stack[-depth], stack[-1]  # type: ignore[operator]


# ---- locals
@opcode("LOAD_FAST")
def load_fast(frame: Frame, op: Op) -> None:
    try:
        frame.stack.append(frame.locals[op.arg])  # type: ignore[index]
    except KeyError:
        if op.arg in frame.cells:  # 3.13 loads cells as locals
            frame.stack.append(frame.cells[op.arg])
            return
        raise _unbound(op.arg) from None


def _unbound(name: Any) -> Raised:
    return Raised(UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value"))


def _undefined(name: Any) -> Raised:
    return Raised(NameError(f"name '{name}' is not defined", name=name))


@opcode("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(frame: Frame, op: Op) -> None:
    name: Any = op.arg
    if name in frame.cells and name not in frame.locals:
        cell = frame.cells.pop(name)
        frame.stack.append(cell)
        return
    frame.stack.append(frame.locals.pop(name, NULL))


@opcode("STORE_FAST")
def store_fast(frame: Frame, op: Op) -> None:
    value = frame.stack.pop()
    name: Any = op.arg
    if value is NULL:
        frame.locals.pop(name, None)
    elif is_cell(value) and name in frame.code.co_cellvars:
        frame.cells[name] = value  # an inlined comprehension gives the outer cell back
        frame.locals.pop(name, None)
    else:
        frame.locals[name] = value


@opcode("DELETE_FAST")
def delete_fast(frame: Frame, op: Op) -> None:
    if op.arg not in frame.locals:
        raise _unbound(op.arg)
    del frame.locals[op.arg]


# ---- globals
def known_globals(frame: Frame) -> dict[str, Any]:
    """The globals of the frame, reached by the entry as what they are."""
    return frame.tracer.world.hold(frame.globals)  # type: ignore[no-any-return]


def load_global_name(frame: Frame, name: str) -> Any:
    """A global, else a builtin, else MISSING."""
    world, namespace = frame.tracer.world, frame.globals
    if frame.is_polyfill:  # nobody changes these names: no guard, and nothing to find in another process
        return namespace.get(name, builtins_of(namespace).get(name, MISSING))
    value = world.dict_get(namespace if world.is_foreign(namespace) else known_globals(frame), name)
    if value is not MISSING:
        return world.resolve(value)
    return _builtin(frame, name)


def _builtin(frame: Frame, name: str) -> Any:
    """What the code finds behind its globals, which a program may change; MISSING."""
    world, found = frame.tracer.world, builtins_of(frame.globals)
    return found.get(name, MISSING) if found is IN_CODE else world.dict_get(world.hold(found, "builtins"), name)


@opcode("LOAD_GLOBAL", "LOAD_NAME")
def load_global(frame: Frame, op: Op) -> None:
    name: Any = op.arg
    if frame.class_locals is not None and op.name == "LOAD_NAME" and name in frame.class_locals:
        frame.stack.append(frame.class_locals[name])
        return
    value = load_global_name(frame, name)
    if value is MISSING:
        raise _undefined(name)
    frame.stack.append(value)


@opcode("DELETE_GLOBAL")
def delete_global(frame: Frame, op: Op) -> None:
    world, namespace = frame.tracer.world, known_globals(frame)
    if world.dict_get(namespace, op.arg) is MISSING:
        raise _undefined(op.arg)
    world.dict_set(namespace, op.arg, DELETED)


# ---- names of class bodies
@opcode("STORE_NAME")
def store_name(frame: Frame, op: Op) -> None:
    if frame.class_locals is None:
        raise GraphBreak("unsupported-opcode", "module-level code")
    frame.tracer.native(operator.setitem, frame.class_locals, op.arg, frame.stack.pop())


@opcode("DELETE_NAME")
def delete_name(frame: Frame, op: Op) -> None:
    if frame.class_locals is None or op.arg not in frame.class_locals:
        raise _undefined(op.arg)
    del frame.class_locals[op.arg]


@opcode("LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
def load_classderef(frame: Frame, op: Op) -> None:
    table = frame.stack.pop() if op.name == "LOAD_FROM_DICT_OR_DEREF" else frame.class_locals
    if table is not None and op.arg in table:
        frame.stack.append(table[op.arg])  # type: ignore[index]
        return
    load_deref(frame, op)


@ROWS.takes("LOAD_FROM_DICT_OR_GLOBALS")
def load_from_dict_or_globals(t: Tracer, op: Op, table: Any) -> Any:
    value = table[op.arg] if op.arg in table else load_global_name(t.frames[-1], op.arg)  # type: ignore[arg-type]
    if value is MISSING:
        raise _undefined(op.arg)
    return value


# ---- cells
@opcode("LOAD_DEREF")
def load_deref(frame: Frame, op: Op) -> None:
    name: Any = op.arg
    value = frame.tracer.world.cell_get(frame.cells[name])
    if value is MISSING or value is DELETED:
        if name in frame.code.co_freevars:
            what = f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
            raise Raised(NameError(what, name=name))
        raise _unbound(name)
    frame.stack.append(frame.tracer.world.resolve(value))


@opcode("LOAD_CLOSURE")
def load_closure(frame: Frame, op: Op) -> None:
    frame.stack.append(frame.cells[op.arg])  # type: ignore[index]


@opcode("MAKE_CELL")
def make_cell(frame: Frame, op: Op) -> None:
    """Frames begin with their cells made; inlined comprehensions make one more where they have shelved the outer one."""
    frame.cells.setdefault(op.arg, types.CellType())  # type: ignore[arg-type]


# ---- imports
@opcode("IMPORT_NAME")
def import_name(frame: Frame, op: Op) -> None:
    """Modules already imported are found; others are imported before the trace, which starts again."""
    names, level = frame.popn(2)[::-1]
    name: Any = op.arg
    if level:
        package = frame.globals.get("__package__") or ""
        base = package.rsplit(".", level - 1)[0] if level > 1 else package
        name = f"{base}.{name}" if name else base
    world = frame.tracer.world
    if _builtin(frame, "__import__") not in _IMPORTERS:
        raise GraphBreak("unknown-call", f"import of {name}, by an `__import__` of the program's own")
    world.hold(sys.modules, "sys.modules")
    module = world.resolve(world.dict_get(sys.modules, name))
    if not isinstance(module, types.ModuleType):
        _import_first(frame, name)
    if "__path__" in module.__dict__ and "__getattr__" not in module.__dict__:
        for part in names or ():
            if part != "*" and part not in module.__dict__ and f"{name}.{part}" not in _tried:
                _import_first(frame, f"{name}.{part}")
    if not names and not level:
        module = world.resolve(world.dict_get(sys.modules, name.partition(".")[0]))
    frame.stack.append(module)


_IMPORTERS = (BUILTINS.__import__, IN_CODE["__import__"])


def _import_first(frame: Frame, name: str) -> NoReturn:
    """Start again with the module loaded, as eager would load it by now; or leave the import to eager, which may fail."""
    if frame.tracer.has_effects() or name in _tried:
        raise GraphBreak("side-effect-call", f"import of {name}, which is not loaded yet")
    _tried.add(name)
    raise StartAgain(functools.partial(_load, name))


def _load(name: str) -> None:
    with suppressed(Exception):  # the program's own import raises it
        importlib.import_module(name)


_tried: set[str] = set()


def _import_from(t: Tracer, op: Op) -> Any:
    name: Any = op.arg
    try:
        return t.get_attr(t.frames[-1].stack[-1], name)
    except NoAttribute:  # then a loaded module of that name is meant, or the import has an error of its own
        raise GraphBreak("side-effect-call", f"import of {name}, which its module does not have") from None


ROWS.on_operands(
    {
        **dict.fromkeys(("POP_TOP", "END_FOR"), lambda t, op, value: None),
        "COPY_FREE_VARS": lambda t, op: None,
        "PUSH_NULL": lambda t, op: NULL,
        "COPY": lambda t, op: t.frames[-1].stack[-op.arg],
        "LOAD_CONST": lambda t, op: op.arg,
        "IMPORT_FROM": _import_from,
        "LOAD_LOCALS": lambda t, op: t.frames[-1].class_locals,
        "STORE_GLOBAL": lambda t, op, value: t.world.dict_set(known_globals(t.frames[-1]), op.arg, value),
        "STORE_DEREF": lambda t, op, value: t.world.cell_set(t.frames[-1].cells[op.arg], value),
        "DELETE_DEREF": lambda t, op: t.world.cell_set(t.frames[-1].cells[op.arg], MISSING),
        "LOAD_BUILD_CLASS": lambda t, op: t.world.resolve(_builtin(t.frames[-1], "__build_class__")),
        "LOAD_ASSERTION_ERROR": lambda t, op: t.world.hold(AssertionError, "AssertionError"),
    }
)
