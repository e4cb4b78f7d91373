"""Trees of arguments and results, and as JSON.

In:     values that a model takes or returns.
Out:    `as_tree`: the same in classes that PyTorch's trees know; `written_tree`, `read_tree`: JSON, and the tree again.
Holds:  an object of a class that is not registered with the trees is told by its attributes if it has nothing else, the
        model made it, and it occurs once. A file makes such objects where its reader names their classes, without calling
        them; so it does named tuples, objects of classes that are registered without a name, as they were registered, and
        results that are classes. Nothing is imported.
"""

from __future__ import annotations

import collections
import enum
import functools
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pliant.entries import constants
from pliant.errors import ExportError, FileError
from pliant.exporting.values import Json, unsaved

_TREES: dict[type, str] = {tuple: "tuple", list: "list", dict: "dict", collections.OrderedDict: "ordered"}


class Parts:
    """In place of an object: its class and its attributes. Of a tree with it the object is made."""

    def __init__(self, cls: type, names: tuple[str, ...], values: list[Any]) -> None:
        self.cls, self.names, self.values = cls, names, values


def _object(values: Any, context: Any) -> Any:
    cls, names = context
    made = object.__new__(cls)
    vars(made).update(zip(names, values, strict=True))
    return made


pytree.register_pytree_node(Parts, lambda one: (one.values, (one.cls, one.names)), _object)


class Itself:
    """In place of a class among the results, which a file tells by its name."""

    def __init__(self, cls: type) -> None:
        self.cls = cls


pytree.register_pytree_node(Itself, lambda one: ([], one.cls), lambda _, cls: cls)


def as_tree(value: Any, outside: Collection[int]) -> tuple[Any, tuple[type, ...]]:
    """The value with `Parts` for objects and `Itself` for classes, and the objects' classes. `outside`: ids of objects that the
    model did not make."""
    seen: dict[int, Any] = {}

    def told(leaf: Any) -> Any:
        if isinstance(leaf, type):
            return Itself(_found(leaf))
        if not is_plain(type(leaf)):
            return leaf
        if id(leaf) in outside or id(leaf) in seen:
            raise _no_result(leaf, "is the program's own" if id(leaf) in outside else "is in it twice")
        seen[id(leaf)] = leaf
        held = object.__getattribute__(leaf, "__dict__")
        return Parts(type(leaf), tuple(held), [pytree.tree_map(told, one) for one in held.values()])

    return pytree.tree_map(told, value), tuple(dict.fromkeys(map(type, seen.values())))


def _no_result(value: Any, what: str) -> ExportError:
    name = type(value).__qualname__
    return ExportError(
        f"the model returns a {name} that {what}", kind="result", why="each call of the program makes new objects",
        do="return its tensors, or register the class with torch.utils._pytree",
    )  # fmt: skip


class _Plain:
    pass


def is_plain(cls: type) -> bool:
    """Whether objects have their attributes and nothing else: memory as those of any class of Python's, without slots. Not those
    that are one of a kind, nor what stands for other values while a model is followed."""
    if isinstance(cls, enum.EnumMeta) or issubclass(cls, torch.nn.Module) or cls.__module__.partition(".")[0] in ("pliant", "torch"):
        return False
    return _layout(cls) == _layout(_Plain) and cls not in pytree.SUPPORTED_NODES


def _layout(cls: type) -> tuple[int, int, int]:
    return cls.__basicsize__, cls.__dictoffset__, cls.__itemsize__


def name_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _found(cls: type) -> type:
    """The class, if it is what its name says; one that a call makes is another each time."""
    module: Any = sys.modules.get(cls.__module__)
    found: object = functools.reduce(lambda one, name: getattr(one, name, None), cls.__qualname__.split("."), module)
    if found is not cls:
        raise ExportError(
            f"the model returns a class, `{cls.__qualname__}`, that is not found by its name", kind="result",
            why="each call would make another", do="define it outside functions, or leave it out of the result",
        )  # fmt: skip
    return cls


# ---- writing
def written_tree(tree: pytree.TreeSpec, objects: Collection[type]) -> Json:
    """`objects`: classes whose objects are told by their attributes."""
    if len({name_of(cls) for cls in objects}) < len(objects):
        raise unsaved("results of several classes of one name")
    return _written_tree(pytree.tree_unflatten([_LEAF] * tree.num_leaves, tree), objects)


_LEAF = object()


def _written_tree(value: Any, objects: Collection[type]) -> Json:
    if value is _LEAF:
        return "*"
    if isinstance(value, type):
        return {"itself": name_of(value)}
    word = _TREES.get(type(value))
    if word in ("dict", "ordered"):
        return {word: [[constants.spelled(key), _written_tree(one, objects)] for key, one in value.items()]}
    if word is not None:
        return {word: [_written_tree(one, objects) for one in value]}
    if type(value) is getattr(torch.return_types, type(value).__name__, None):
        return {"returned": type(value).__name__, "items": [_written_tree(one, objects) for one in value]}
    if type(value) in objects:
        return {"object": name_of(type(value)), "items": [[name, _written_tree(one, objects)] for name, one in vars(value).items()]}
    if pytree.is_namedtuple_instance(value):
        return {"named": name_of(type(value)), "items": [_written_tree(one, objects) for one in value]}
    if _is_unnamed(type(value)):
        children, context = pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)
        if not _is_plain_json(context):
            raise unsaved(f"a {type(value).__qualname__} among arguments or results, which is not registered with a name")
        return {"registered": name_of(type(value)), "context": context, "items": [_written_tree(one, objects) for one in children]}
    children, context, name = registered_parts(value)
    return {"class": name, "context": context, "items": [_written_tree(one, objects) for one in children]}


def _is_unnamed(cls: type) -> bool:
    """Whether the class is one of the program's that is registered without a name for files."""
    known = pytree.SUPPORTED_SERIALIZED_TYPES.get(cls)
    return cls in pytree.SUPPORTED_NODES and cls not in _BUILT_IN and (known is None or known.serialized_type_name == _UNNAMED)


def _is_plain_json(value: Any) -> bool:
    return value is None or type(value) in (bool, int, str) or type(value) is list and all(map(_is_plain_json, value))


def classes_of(*trees: pytree.TreeSpec) -> set[type]:
    """Classes of named tuples and of what is registered without a name, and those that are results: a reader of the trees has
    to name them."""
    found = set()

    def note(value: Any) -> bool:
        if isinstance(value, type):
            found.add(value)
        elif pytree.is_namedtuple_instance(value) or _is_unnamed(type(value)):
            found.add(type(value))
        return False

    for tree in trees:
        pytree.tree_flatten(pytree.tree_unflatten([_LEAF] * tree.num_leaves, tree), is_leaf=note)
    return found


_UNNAMED = "NO_SERIALIZED_TYPE_NAME_FOUND"  # how PyTorch says it


def registered_parts(value: Any) -> tuple[list[Any], Json, str]:
    """Children, context as text or JSON, and the registered name of an object of a class of the program's."""
    node = pytree.SUPPORTED_NODES.get(type(value))
    known = pytree.SUPPORTED_SERIALIZED_TYPES.get(type(value))
    named = known is not None and type(known.serialized_type_name) is str and known.serialized_type_name != _UNNAMED
    if node is None or known is None or not named:
        raise unsaved(f"a {type(value).__qualname__} among arguments or results, which is not registered with a name")
    children, context = node.flatten_fn(value)
    dumped = known.to_dumpable_context(context) if known.to_dumpable_context else context
    return list(children), dumped, known.serialized_type_name


# ---- reading
def read_tree(json: Json, classes: Collection[type]) -> tuple[pytree.TreeSpec, tuple[type, ...]]:
    """The tree, and those of the classes that it has objects of."""
    known = {name_of(cls): cls for cls in classes}
    wanted = set(_classes_in(json))
    if missing := sorted({name for word, name in wanted if name not in known or not _OF_CLASSES[word](known[name])}):
        raise _of_a_class(missing)
    objects = sorted(name for word, name in wanted if word == "object")
    return pytree.tree_structure(_read_tree(json, known)), tuple(known[name] for name in objects)


# What each word of a file makes objects of.
_OF_CLASSES: dict[str, Callable[[type], bool]] = {
    "object": is_plain, "named": pytree.is_namedtuple_class, "registered": _is_unnamed, "itself": lambda cls: True,
}  # fmt: skip


def _classes_in(json: Json) -> Iterator[tuple[str, str]]:
    """The classes that the tree has objects of, behind the word for how they are made."""
    if isinstance(json, dict):
        yield from ((word, json[word]) for word in _OF_CLASSES if isinstance(json.get(word), str))
    for one in json.values() if isinstance(json, dict) else json if isinstance(json, list) else ():
        yield from _classes_in(one)


def names_classes(json: Json) -> bool:
    """Whether a reader of the tree has to name classes of other than plain objects."""
    return any(word != "object" for word, _ in _classes_in(json))


def _of_a_class(names: list[str]) -> FileError:
    """The caller alone decides of which classes a file may make objects."""
    written = ", ".join(name.replace(":", ".") for name in names)
    return FileError(
        f"the program takes or returns objects of {written}", kind="class",
        why="their classes run what they do with attributes that the file has, so whoever loads a file names those that it may make",
        do=f"if you trust it: pliant.load(path, classes=({written},))", doc="docs/export.md#files",
    )  # fmt: skip


def _read_tree(json: Json, known: Mapping[str, type]) -> Any:
    match json:
        case "*":
            return 0
        case {"tuple": list(items)}:
            return tuple(_all(items, known))
        case {"list": list(items)}:
            return _all(items, known)
        case {"dict": list(items)}:
            return {constants.read(key): _read_tree(one, known) for key, one in items}
        case {"ordered": list(items)}:
            return collections.OrderedDict((constants.read(key), _read_tree(one, known)) for key, one in items)
        case {"returned": str(name), "items": list(items)}:
            return _returned(name, _all(items, known))
        case {"object": str(name), "items": list(items)}:
            names = tuple(name for name, _ in items)
            if not all(type(one) is str for one in names):
                raise ValueError("an attribute that has no name")
            return Parts(known[name], names, [_read_tree(one, known) for _, one in items])
        case {"itself": str(name)}:
            return Itself(known[name])
        case {"named": str(name), "items": list(items)}:
            return _of_names(known[name], _all(items, known))
        case {"registered": str(name), "context": context, "items": list(items)}:
            return pytree.SUPPORTED_NODES[known[name]].unflatten_fn(_all(items, known), context)
        case {"class": str(name), "context": context, "items": list(items)}:
            return _made(name, context, _all(items, known))
    raise ValueError("no tree of arguments or results")


def _all(items: list[Json], known: Mapping[str, type]) -> list[Any]:
    return [_read_tree(one, known) for one in items]


def _of_names(cls: Any, children: Sequence[Any]) -> Any:
    if len(children) != len(cls._fields):
        raise ValueError(f"a {cls.__name__} of {len(children)} items")
    return tuple.__new__(cls, children)


def _returned(name: str, children: Sequence[Any]) -> Any:
    """What an operator of PyTorch returns in a class of its own: names of several tensors."""
    cls = getattr(torch.return_types, name, None)
    if cls not in pytree.SUPPORTED_NODES or len(children) != cls.n_sequence_fields:
        raise ValueError(f"`{name}` is nothing that operators return")
    return cls(children)


def _made(name: str, context: Json, children: Sequence[Any]) -> Any:
    cls = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(name)
    if cls is None or cls in _BUILT_IN:
        module = name.rpartition(".")[0]
        raise FileError(
            f"the program returns or takes objects of `{name}`, which is not registered in this process", kind="class",
            do=f"import {module.partition('.')[0]}, or what else registers it, before", doc="docs/export.md#files",
        )  # fmt: skip
    known = pytree.SUPPORTED_SERIALIZED_TYPES[cls]
    read = known.from_dumpable_context(context) if known.from_dumpable_context else context
    return pytree.SUPPORTED_NODES[cls].unflatten_fn(list(children), read)


_BUILT_IN = frozenset((collections.defaultdict, collections.deque, collections.namedtuple))  # contexts that import
