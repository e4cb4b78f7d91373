"""Trees of arguments and results, and as JSON.

In:     values that a model takes or returns.
Out:    `flattened`: the leaves of a result and its tree; `written_tree`, `read_tree`: JSON, and the tree again.
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
from pliant.graph.fake_tensor import FakeTensor


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


class Sized:
    """In place of a `torch.Size` among the results, of which PyTorch's trees make a tuple."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items


def _size_of(items: list[Any]) -> Any:
    """The size, or a tuple where the items are none of it, as what a pass puts in their place."""
    return torch.Size(items) if {int, torch.SymInt}.issuperset(map(type, items)) else tuple(items)


pytree.register_pytree_node(Sized, lambda one: (one.items, None), lambda items, _: _size_of(list(items)))


def _is_size(value: Any) -> bool:
    return type(value) is torch.Size


def flattened(value: Any, outside: Collection[int]) -> tuple[list[Any], pytree.TreeSpec, tuple[type, ...]]:
    """The leaves of a result, its tree, and the classes of objects in it. `outside`: ids of objects that the model did not make."""
    from pliant.capture.varying_values import varying  # whoever runs a loaded program loads no capture

    value, objects = _as_tree(value, outside)
    leaves, tree = pytree.tree_flatten(value)
    for one in _parts_of(tree):
        if any(varying(leaf) or isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves(one.context)):
            raise ExportError(
                f"the model returns a {one.type.__qualname__} that holds a size or tensor beside its parts", kind="result",
                why="what `torch.utils._pytree` is told as its context is the same at all calls",
                do="tell it as one of the parts, where the class is registered",
            )  # fmt: skip
    return leaves, tree, objects


def _parts_of(tree: pytree.TreeSpec) -> Iterator[pytree.TreeSpec]:
    """The tree and the trees in it, without leaves."""
    if not tree.is_leaf():
        yield tree
        for one in tree.children():
            yield from _parts_of(one)


def _as_tree(value: Any, outside: Collection[int]) -> tuple[Any, tuple[type, ...]]:
    """The value with `Parts` for objects, `Itself` for classes and `Sized` for sizes, and the objects' classes."""
    seen: dict[int, Any] = {}

    def told(leaf: Any) -> Any:
        if isinstance(leaf, type):
            return Itself(_found(leaf))
        if not is_plain(type(leaf)):
            return Sized(list(leaf)) if _is_size(leaf) else leaf
        if id(leaf) in outside or id(leaf) in seen:
            raise _no_result(leaf, "is the program's own" if id(leaf) in outside else "is in it twice")
        seen[id(leaf)] = leaf
        held = object.__getattribute__(leaf, "__dict__")
        return Parts(type(leaf), tuple(held), [pytree.tree_map(told, one, is_leaf=_is_size) for one in held.values()])

    return pytree.tree_map(told, value, is_leaf=_is_size), tuple(dict.fromkeys(map(type, seen.values())))


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
def written_tree(tree: pytree.TreeSpec) -> Json:
    objects = {one.context[0] for one in _parts_of(tree) if one.type is Parts}
    if len({name_of(cls) for cls in objects}) < len(objects):
        raise unsaved("results of several classes of one name")
    return _written_tree(tree)


def _written_tree(tree: pytree.TreeSpec) -> Json:
    if tree.is_leaf():
        return "*"
    items = list(map(_written_tree, tree.children()))
    if writer := _WRITERS.get(tree.type):
        return writer(tree.context, items)
    name = tree.type.__name__
    if tree.type is getattr(torch.return_types, name, None):
        return {"returned": name, "items": items}
    if _is_unnamed(tree.type):
        if not _is_plain_json(tree.context):
            raise _not_named(tree.type)
        return {"registered": name_of(tree.type), "context": tree.context, "items": items}
    return {**_registered(tree.type, tree.context), "items": items}


def _with_keys(keys: Sequence[Any], items: list[Json]) -> list[Json]:
    return [[constants.spelled(key), one] for key, one in zip(keys, items, strict=True)]


def _default(context: tuple[Any, Sequence[Any]], items: list[Json]) -> Json:
    factory, keys = context
    if factory not in _FACTORIES.values():
        raise unsaved("a defaultdict whose values are made by a function of the program's")
    return {"default": _with_keys(keys, items), "factory": None if factory is None else factory.__name__}


_FACTORIES: dict[str | None, Any] = {None: None, **{cls.__name__: cls for cls in (list, dict, set, tuple, int, float, bool, str)}}
# By class of a part, what is written of its context and its items.
_WRITERS: dict[Any, Callable[[Any, list[Json]], Json]] = {
    tuple: lambda _, items: {"tuple": items},
    list: lambda _, items: {"list": items},
    dict: lambda keys, items: {"dict": _with_keys(keys, items)},
    collections.OrderedDict: lambda keys, items: {"ordered": _with_keys(keys, items)},
    collections.defaultdict: _default,
    collections.deque: lambda most, items: {"deque": items, "most": most},
    collections.namedtuple: lambda cls, items: {"named": name_of(cls), "items": items},
    Parts: lambda context, items: {"object": name_of(context[0]), "items": list(map(list, zip(context[1], items, strict=True)))},
    Itself: lambda cls, _: {"itself": name_of(cls)},
    **dict.fromkeys((Sized, torch.Size), lambda _, items: {"class": _SIZE, "context": None, "items": items}),
}
_SIZE = "torch.Size"


def _is_unnamed(cls: type) -> bool:
    """Whether the class is one of the program's that is registered without a name for files."""
    known = pytree.SUPPORTED_SERIALIZED_TYPES.get(cls)
    return cls in pytree.SUPPORTED_NODES and cls not in _WRITERS and (known is None or known.serialized_type_name == _UNNAMED)


def _is_plain_json(value: Any) -> bool:
    return value is None or type(value) in (bool, int, str) or type(value) is list and all(map(_is_plain_json, value))


def classes_of(*trees: pytree.TreeSpec) -> set[type]:
    """Classes of named tuples and of what is registered without a name, and those that are results: a reader of the trees has
    to name them."""
    parts = [one for tree in trees for one in _parts_of(tree)]
    return {one.context for one in parts if one.type in (collections.namedtuple, Itself)} | {one.type for one in parts if _is_unnamed(one.type)}


_UNNAMED = "NO_SERIALIZED_TYPE_NAME_FOUND"  # how PyTorch says it


def _registered(cls: type, context: Any) -> dict[str, Json]:
    """The registered name of a class of the program's, and the context as text or JSON."""
    known = pytree.SUPPORTED_SERIALIZED_TYPES.get(cls)
    if known is None or type(known.serialized_type_name) is not str or known.serialized_type_name == _UNNAMED:
        raise _not_named(cls)
    dumped = known.to_dumpable_context(context) if known.to_dumpable_context else context
    return {"class": known.serialized_type_name, "context": dumped}


def _not_named(cls: type) -> ExportError:
    return unsaved(f"a {cls.__qualname__} among arguments or results, which is not registered with a name")


# ---- reading
def read_tree(json: Json, classes: Collection[type], makes: bool = False) -> tuple[pytree.TreeSpec, tuple[type, ...]]:
    """The tree, and those of the classes that it has objects of. `makes`: of results, which are made of it."""
    known = {name_of(cls): cls for cls in classes}
    wanted = set(_classes_in(json))
    if missing := sorted({name for word, name in wanted if name not in known or not _OF_CLASSES[word](known[name])}):
        raise _of_a_class(missing)
    objects = sorted(name for word, name in wanted if word == "object")
    tree = pytree.tree_structure(_read_tree(json, {**known, _SIZE: Sized if makes else torch.Size}))
    return tree, tuple(known[name] for name in objects)


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
        case {"default": list(items), "factory": name}:
            found = {constants.read(key): _read_tree(one, known) for key, one in items}
            return collections.defaultdict(_FACTORIES[name], found)
        case {"deque": list(items), "most": most}:
            return collections.deque(_all(items, known), most)
        case {"class": "torch.Size", "items": list(items)}:
            return known[_SIZE](_all(items, known))
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
    if cls is None or cls in _WRITERS:
        module = name.rpartition(".")[0]
        raise FileError(
            f"the program returns or takes objects of `{name}`, which is not registered in this process", kind="class",
            do=f"import {module.partition('.')[0]}, or what else registers it, before", doc="docs/export.md#files",
        )  # fmt: skip
    known = pytree.SUPPORTED_SERIALIZED_TYPES[cls]
    read = known.from_dumpable_context(context) if known.from_dumpable_context else context
    return pytree.SUPPORTED_NODES[cls].unflatten_fn(list(children), read)
