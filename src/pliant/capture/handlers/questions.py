"""Questions about objects, their classes and their attributes by name, about the mode of execution and the machine.

Holds:  what is answered from an object outside is guarded.
"""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]
import abc
import inspect
import types
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.nn import TransformerEncoder
from torch.utils.hooks import RemovableHandle

from pliant import config
from pliant.capture.graph_breaks import GraphBreak, NoAttribute, Raised
from pliant.capture.handlers.table import Handler, Rows, spread
from pliant.capture.numbers.array_memory import is_array, unhashable
from pliant.capture.numbers.numpy_scalars import is_scalar
from pliant.capture.outside.identity import HookId, TracedId, take_hook_id
from pliant.capture.program_stack import locals_of
from pliant.capture.protocols import attribute_stores, attributes, class_statements, operators, polyfills
from pliant.capture.protocols.module_attributes import namespace_of
from pliant.capture.protocols.tail_calls import TailCall, ended, steps_of, within
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import leaves
from pliant.capture.trace import DELETED
from pliant.capture.value_kinds import (
    COMPARED_IN_C,
    PLAIN_TYPES,
    ByKind,
    derives,
    function_of,
    is_class,
    is_function,
    is_hashed_by_identity,
    is_method,
    is_numpy_scalar,
    is_symbolic,
    name_of_class,
    varying,
)
from pliant.capture.varying_values import is_text
from pliant.debug import events
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.guards.facts import CacheToken
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.parts import root_of
from pliant.guards.sources import AttributeSource, ItemSource, MethodSource, question
from pliant.guards.standard import can_change
from pliant.torch_adapter import (
    DisableTorchFunction,
    answers_of_torch,
    group_tensors_by_device_and_dtype,
    hash_of_tensor,
    is_view,
)
from pliant.unpatched import BUILTINS

ROWS = Rows()
handles, takes, TABLE = ROWS.handles, ROWS.takes, ROWS.callables


# Where the answer decides what is computed, not how: with padding masks these give other values while compiling.
_COMPUTES_OTHERWISE = frozenset((TransformerEncoder.forward.__code__,))


@handles(torch.compiler.is_compiling)
def _is_compiling(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    if t.frames[-1].code in _COMPUTES_OTHERWISE:
        return False
    answer = config.get().capture.is_compiling
    asked, *callers = [frame.location() for frame in reversed(t.frames)]
    events.record(
        "is_compiling", answer=answer, where=asked, callers="".join(f"\n  from {one}" for one in callers[:_FEW])
    )
    return answer


_FEW = 3  # callers that are told: libraries ask through functions of their own, and branch around them


def _always(answer: Any) -> Handler:
    return lambda t, args, kwargs: answer


# Questions about the mode of execution, which have one answer inside compiled code; a release may lack one.
TABLE |= {
    function: _always(answer)
    for owner, name, answer in (
        (torch.jit, "is_scripting", False), (torch.jit, "is_tracing", False),
        (torch.compiler, "is_dynamo_compiling", True), (torch.compiler, "is_exporting", False),
        (torch.cuda, "is_current_stream_capturing", False), *answers_of_torch(),
    )
    if (function := getattr(owner, name, None)) is not None
}  # fmt: skip


@handles(group_tensors_by_device_and_dtype)
def _group_tensors(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """{(device, dtype of the first list's tensor): (the lists, their positions)}"""
    lists, with_indices = [t.sequence(one) for one in t.sequence(args[0])], args[1] if len(args) > 1 else False
    groups: dict[Any, tuple[list[list[Any]], list[int]]] = {}
    for position, first in enumerate(lists[0]):
        key = (t.get_attr(first, "device"), t.get_attr(first, "dtype"))
        members, positions = groups.setdefault(key, ([[] for _ in lists], []))
        for member, one in zip(members, lists):
            member.append(one[position])
        if with_indices:
            positions.append(position)
    return groups


# ---- questions about objects
def _of_any(asked: Callable[[Tracer, Any, Any], Any]) -> Handler:
    """A question about a class or, by turns, each of a tuple of classes."""

    def question(t: Tracer, subject: Any, wanted: Any) -> Any:
        if isinstance(wanted, types.UnionType) and all(map(is_class, wanted.__args__)):
            wanted = wanted.__args__
        if isinstance(wanted, tuple):
            return any(ended(t, question(t, subject, one)) for one in wanted)
        return asked(t, subject, wanted)

    return spread(question)


def _check_class(t: Tracer, value: Any, wanted: Any) -> Any:
    cls = type(value)
    if is_array(value) or attributes.stands_for(value) is not None:
        return bool(t.native(BUILTINS.issubclass, attributes.bring_class(t, value), wanted))
    if cls is not wanted and (hook := class_check(t, wanted, "__instancecheck__")) is not None:
        return TailCall(polyfills.contained, (hook, wanted, value, True))
    if cls is not FakeTensor and attributes.claims_class(t, cls):
        claimed = cls if issubclass(cls, wanted) else t.get_attr(value, "__class__")
        _guard_relation(t, claimed, wanted)
        return derives(claimed, wanted)
    own = cls if cls in t.world.class_sources and cls is not wanted else attributes.bring_class(t, value)
    _ask_subclass_hook(t, wanted, own)
    found = bool(t.native(BUILTINS.isinstance, value, wanted))
    _guard_relation(t, own, wanted)
    return found


def class_check(t: Tracer, wanted: Any, name: str) -> types.FunctionType | None:
    """What the program's own metaclass of the class says about its instances or subclasses."""
    hook = t.world.python_function(type(wanted), name)
    return hook if hook is not None and hook.__module__.partition(".")[0] not in _OWN_CHECKS else None


def _is_abstract(wanted: Any) -> bool:
    """Whether the class keeps its answers about others, which may be registered with it."""
    return isinstance(wanted, abc.ABCMeta)


def _ask_subclass_hook(t: Tracer, wanted: Any, cls: type) -> None:
    """Before an abstract class of the program's is asked: its hook, whose answers it keeps, may have no effect."""
    if not _is_abstract(wanted):
        return
    asked = function_of(t.world.type_lookup(wanted, "__subclasshook__"))
    if asked is None or asked.__module__.partition(".")[0] in _OWN_CHECKS:
        return
    _, known, known_not, version = _abc._get_dump(wanted)
    kept = [*known, *(known_not if version == abc.get_cache_token() else ())]
    if all(reference() is not cls for reference in kept):
        before = t.world.changes()
        t.call(asked, (wanted, cls), {})
        if t.world.changes() != before:
            raise GraphBreak("unknown-call", f"the __subclasshook__ of {wanted.__name__}, whose answers are kept")


_OWN_CHECKS = frozenset(("abc", "collections", "contextlib", "enum", "numbers", "os", "torch", "typing", "numpy"))


def _guard_relation(t: Tracer, cls: Any, wanted: Any) -> None:
    """The bases of the class stay as they are, and so do the classes registered with an abstract one."""
    bases = cls.__mro__ if is_class(cls) else ()
    if bases:
        t.world.type_lookup(cls, "__class__")  # any name: the guard compares `__mro__` too
    if _is_abstract(wanted) and wanted not in bases:
        t.world.type_lookup(wanted, "__class__")
        token = t.cache_token
        if token is None or token != abc.get_cache_token():
            token = t.cache_token = CacheToken(abc.get_cache_token())
        if wanted not in token.asked:
            token.asked.append(wanted)
        t.world.guard(question(abc.get_cache_token), Kind.EQUALS, token)


def _check_subclass(t: Tracer, cls: Any, wanted: Any) -> Any:
    if (hook := class_check(t, wanted, "__subclasscheck__")) is not None:
        return TailCall(polyfills.contained, (hook, wanted, cls, True))
    _ask_subclass_hook(t, wanted, cls)
    found = t.native(BUILTINS.issubclass, cls, wanted)
    _guard_relation(t, cls, wanted)
    return found


@handles(type)
def _type(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and not kwargs:
        return attributes.bring_class(t, args[0])
    if len(args) != 3:
        t.native(type, *args, **kwargs)  # which complains
    return class_statements.new_class(t, type, args, kwargs)


def _number_of(t: Tracer, obj: Any) -> TracedId:
    if is_symbolic(obj):
        raise GraphBreak("unknown-call", "id() of a number that varies")
    t.world.note_identity(obj)
    obj = t.world.note_which(obj)
    return TracedId.of(obj, t.world.real_object(obj), t.world.real_key)


@takes(BUILTINS.id)
def _id(t: Tracer, obj: Any) -> Any:
    """What the call was given may be another object in the next call; what the entry holds is always the same."""
    obj = t.world.resolve(obj)
    source = t.world.source_of(obj)
    if source is None or is_fake(obj) or not root_of(source).is_held:
        return _number_of(t, obj)
    t.world.guard(source, Kind.IDENTITY, obj)
    return id(obj)


@handles(take_hook_id)
def _take_hook_id(t: Tracer, args: Args, kwargs: Kwargs) -> HookId:
    t.hook_ids += 1
    return HookId(RemovableHandle.next_id + t.hook_ids)


def _of_code(question: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """The signature, or the text, of a function is a constant of its code, which calls of it guard."""
    function = args[0]
    if is_method(function):
        function = function.__func__
    if (told_by := _TOLD_BY.of(function)) is None:
        raise GraphBreak("unknown-call", f"the {question.__name__} of a {type(function).__name__}")
    t.get_attr(function, told_by)
    if question is inspect.signature and is_function(function) and t.world.is_foreign(function):
        _guard_defaults(t, function)
    return t.native(question, args[0])


def _guard_defaults(t: Tracer, function: types.FunctionType) -> None:
    """They are those of now."""
    place = t.world.place_of(function)
    t.world.guard(AttributeSource(place, "__defaults__"), Kind.IDENTITY, function.__defaults__)
    by_name, given = AttributeSource(place, "__kwdefaults__"), function.__kwdefaults__
    t.world.guard(by_name, Kind.IDENTITY, given)
    for name, value in (given or {}).items():
        t.world.guard(ItemSource(by_name, name), Kind.IDENTITY, value)


_TOLD_BY: ByKind[str | None] = ByKind(None, {types.FunctionType: "__code__"}, {type: "__init__"})
ROWS.each((inspect.signature, inspect.getsource, inspect.getsourcelines, inspect.getsourcefile, inspect.getfile), _of_code)


@handles(BUILTINS.hash)
def _hash(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if is_numpy_scalar(args[0]) or is_scalar(args[0]):
        return t.native(BUILTINS.hash, t.hashable(args[0]))
    method = operators.python_method(t, args[0], "__hash__")
    if method is not None:
        return TailCall(polyfills.hashed, (method, args[0]))
    return _HASHES.of(args[0])(t, args[0])


def _is_traced(t: Tracer, value: Any) -> bool:
    """Whether it is an object of the trace, whose identity no call knows before."""
    return isinstance(_id(t, value), TracedId)


def _hash_in_c(t: Tracer, value: Any) -> Any:
    plain = t.world.type_lookup(type(value), "__hash__") is object.__hash__
    if plain and not _is_traced(t, value):
        return t.native(BUILTINS.hash, value)
    if type(value).__hash__ is None:
        raise Raised(unhashable(value))
    raise GraphBreak("unknown-call", "hash() of an object without __hash__")


def _hash_by_value(t: Tracer, value: Any) -> Any:
    key = t.hashable(value)
    objects = [one for one in leaves(key) if is_hashed_by_identity(one) and type(one) not in COMPARED_IN_C]
    if any(_is_traced(t, one) for one in objects):
        raise GraphBreak("unknown-call", "hash() of what holds an object that was made here")
    return t.native(BUILTINS.hash, key)


_BY_VALUE = (*COMPARED_IN_C, tuple, frozenset, range, *PLAIN_TYPES)
_HASHES: ByKind[Callable[..., Any]] = ByKind(
    _hash_in_c,
    families={
        FakeTensor: _number_of,
        **dict.fromkeys(_BY_VALUE, _hash_by_value),
    },
)


# ---- attributes by name
@handles(BUILTINS.getattr)
def _getattr(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    try:
        found = attributes.find_attribute(t, args[0], args[1])
    except NoAttribute:
        if len(args) == 3:
            return args[2]
        raise
    return within(polyfills.attribute_or if len(args) == 3 else polyfills.attribute_of, found, *(args[2:] or args))


@handles(BUILTINS.hasattr)
def _hasattr(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    try:
        found = attributes.find_attribute(t, args[0], args[1])
    except NoAttribute:
        return False
    asked = within(polyfills.has_attribute, found)
    return asked is found or asked


@takes(BUILTINS.vars)
def _vars(t: Tracer, *objects: Any) -> Any:
    if not objects:
        return locals_of(t, t.frames[-1])
    try:
        return t.get_attr(objects[0], "__dict__")
    except NoAttribute:
        raise Raised(TypeError("vars() argument must have __dict__ attribute")) from None


@handles(BUILTINS.dir)
def _dir(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if not args:
        return sorted(locals_of(t, t.frames[-1]))
    obj = t.internalize(args[0])
    t.refuse_opaque(obj)
    if (cls := varying(obj)) is not None:
        return t.native(dir, cls)
    return _NAMES.of(obj)(t, obj)


def _names_of_module(t: Tracer, module: types.ModuleType) -> list[str]:
    if "__dir__" in namespace_of(t.world, module):
        _no_names(t, module)
    return sorted(t.world.keys_of(namespace_of(t.world, module)))


def _no_names(t: Tracer, obj: Any) -> NoReturn:
    raise GraphBreak("unknown-call", f"dir() of a {type(obj).__name__}")


def _names_of_object(t: Tracer, obj: Any) -> list[str]:
    """With those of its class, which stay as they are."""
    cls: type = obj if is_class(obj) else attributes.bring_class(t, obj)
    if t.world.python_function(cls if cls is not obj else type(cls), "__dir__") is not None:
        _no_names(t, obj)
    t.world.type_lookup(cls, "__class__")  # any name: the guard compares `__mro__` too
    for base in cls.__mro__:
        if can_change(base) and not t.world.is_made(base):
            attributes.guard_names(t, base)
    return list(t.native(BUILTINS.dir, obj))


_NAMES: ByKind[Callable[..., Any]] = ByKind(
    _names_of_object,
    {types.ModuleType: _names_of_module},
    dict.fromkeys((types.FunctionType, types.ModuleType, torch.Tensor), _no_names),
)


@takes(is_view)
def _is_view(t: Tracer, tensor: Any) -> Any:
    """Of a tensor from outside, whose fake is none."""
    example = t.inputs.example_of(tensor)
    if example is None:
        return t.native(is_view, tensor)
    with DisableTorchFunction():
        answer = is_view(example)
    t.world.guard(MethodSource(t.world.place_of(tensor), "_is_view"), Kind.EQUALS, answer)
    return answer


@handles(polyfills.is_object_of)
def _is_object_of(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    made = attributes.bring_class(t, args[0])
    _guard_relation(t, made, args[1])
    return type.__subclasscheck__(args[1], made)


@handles(name_of_class)
def _class_name(t: Tracer, args: Args, kwargs: Kwargs) -> str:
    return name_of_class(*args)


def _content(t: Tracer, cell: types.CellType | None) -> Any:
    found = MISSING if cell is None else t.world.cell_get(cell)
    return MISSING if found is DELETED else found


@handles(super)
def _super(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if not args:
        frame = t.frames[-1]
        if not frame.code.co_argcount:
            raise Raised(RuntimeError("super(): no arguments"))
        first = frame.code.co_varnames[0]
        receiver = frame.locals[first] if first in frame.locals else _content(t, frame.cells.get(first))
        if receiver is MISSING:
            raise Raised(RuntimeError("super(): arg[0] deleted"))
        if "__class__" not in frame.cells:
            raise Raised(RuntimeError("super(): __class__ cell not found"))
        if (cls := _content(t, frame.cells["__class__"])) is MISSING:
            raise Raised(RuntimeError("super(): empty __class__ cell"))
        args = (cls, receiver)
    return t.native(super, *args)


def _of_name(rule: Callable[..., Any], *last: Any) -> Handler:
    """What is done with an attribute whose name the program computes."""

    def named(t: Tracer, obj: Any, name: Any, *value: Any) -> Any:
        if not is_text(name):
            t.native(getattr, None, name)  # which complains
        return rule(t, obj, name, *value, *last)

    return spread(named)


ATTRIBUTE_METHODS: dict[str, Handler] = {
    "__getattribute__": _of_name(attributes.generic_get_attr),
    "__setattr__": _of_name(attribute_stores.find_store),
    "__delattr__": _of_name(attribute_stores.find_store, DELETED),
}
TABLE |= {getattr(object, name): handler for name, handler in ATTRIBUTE_METHODS.items()}
TABLE |= {
    BUILTINS.isinstance: _of_any(_check_class),
    BUILTINS.issubclass: _of_any(_check_subclass),
    BUILTINS.globals: spread(lambda t: t.world.hold(t.frames[-1].globals, "globals()")),
    BUILTINS.locals: spread(lambda t: locals_of(t, t.frames[-1])),
    torch.compiler.cudagraph_mark_step_begin: _always(None),  # marks a step for another compiler's graphs
    BUILTINS.len: spread(steps_of(operators.length)),
    BUILTINS.setattr: _of_name(steps_of(attribute_stores.set_attr)),
    BUILTINS.delattr: _of_name(steps_of(attribute_stores.delete_attr)),
    BUILTINS.callable: spread(
        lambda t, obj: t.world.type_lookup(attributes.bring_class(t, obj), "__call__") is not MISSING
    ),
    hash_of_tensor: spread(_number_of),
}


# What a GPU can do, and how many there are, does not change while a process runs.
_CUDA = (
    "is_available is_bf16_supported is_tf32_supported device_count get_device_capability get_device_name get_arch_list"
)
ROWS.each(
    (*(getattr(torch.cuda, name) for name in _CUDA.split()), torch.cuda.amp.common.amp_definitely_not_available),
    lambda function, t, args, kwargs: t.native(function, *map(t.internalize, args), **kwargs),
)
