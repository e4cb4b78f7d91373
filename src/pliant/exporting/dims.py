"""What a user says about the sizes of an exported program's inputs.

In:     `dynamic_shapes=`: by parameter names, by positions, or as trees that follow the arguments.
Out:    `sizes_of(...)`: for each tensor among the arguments what each of its dimensions is.
Holds:  a spec that does not fit the arguments is a `ConstraintError` that names the place.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

from pliant.errors import ConstraintError
from pliant.records import dataclass


class Dim:
    """A size that may vary, by name: `Dim("batch", min=1, max=64)`. Equal names are one size. Bounds that are left out
    are as wide as the program allows, from 1 on."""

    __slots__ = ("max", "min", "name")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise _wrong(f"a Dim cannot be called {name!r}", "its name stands in printed programs", "pass an identifier")
        for bound in (min, max):
            if bound is not None and (type(bound) is not int or bound < 0):
                raise _wrong(f"{name} cannot be bounded by {bound!r}", "sizes are whole numbers from 0 on", "pass an int")
        if min is not None and max is not None and min >= max:
            raise _wrong(f"{name} has no room between {min} and {max}", "a Dim has several values", "use STATIC")
        self.name, self.min, self.max = name, min, max

    def __add__(self, other: int) -> Derived:
        return Derived(self, 1, _whole(other))

    def __sub__(self, other: int) -> Derived:
        return Derived(self, 1, -_whole(other))

    def __mul__(self, other: int) -> Derived:
        return Derived(self, _factor(other), 0)

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and (self.name, self.min, self.max) == (other.name, other.min, other.max)

    def __hash__(self) -> int:
        return hash((self.name, self.min, self.max))

    def __repr__(self) -> str:
        bounds = [f"{name}={value}" for name, value in (("min", self.min), ("max", self.max)) if value is not None]
        return f"Dim({', '.join([repr(self.name), *bounds])})"


@dataclass(frozen=True, slots=True)
class Derived:
    """text: 2*batch + 1      the size `factor * root + offset`."""

    root: Dim
    factor: int
    offset: int

    def __add__(self, other: int) -> Derived:
        return Derived(self.root, self.factor, self.offset + _whole(other))

    def __sub__(self, other: int) -> Derived:
        return self + -_whole(other)

    def __mul__(self, other: int) -> Derived:
        return Derived(self.root, self.factor * _factor(other), self.offset * other)

    __radd__, __rmul__ = __add__, __mul__

    def __str__(self) -> str:
        text = self.root.name if self.factor == 1 else f"{self.factor}*{self.root.name}"
        return text if not self.offset else f"{text} {'+-'[self.offset < 0]} {abs(self.offset)}"


class _Word:
    """`AUTO` or `STATIC`."""

    __slots__ = ("word",)

    def __init__(self, word: str) -> None:
        self.word = word

    def __repr__(self) -> str:
        return self.word

    def __reduce__(self) -> str:
        return self.word


AUTO = _Word("AUTO")  # varies as far as the program allows
STATIC = _Word("STATIC")  # is always what it is now

Size: TypeAlias = "Dim | Derived | _Word"


def _wrong(what: str, why: str, do: str) -> ConstraintError:
    return ConstraintError(what, kind="dynamic-shapes", why=why, do=do, doc="docs/export.md#sizes")


def _whole(number: object) -> int:
    if type(number) is not int:
        raise _wrong(f"{number!r} cannot be added to a Dim", "derived sizes are a*dim + b with whole a and b", "pass an int")
    return number


def _factor(number: object) -> int:
    if _whole(number) < 1:
        raise _wrong(f"a Dim cannot be multiplied by {number}", "sizes are not negative", "pass a factor from 1 on")
    return _whole(number)


# ---- where the sizes stand
@dataclass(frozen=True, slots=True)
class TensorSizes:
    """What is said of the sizes of one tensor, which messages call `path`."""

    path: str
    sizes: tuple[Size, ...]


def arguments_of(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by the names of parameters; by position where there is no signature."""
    try:
        called = fn.forward if isinstance(fn, torch.nn.Module) else fn
        return dict(inspect.signature(called).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # the call itself tells what is wrong with its arguments
        return {**{f"arg{i}": one for i, one in enumerate(args)}, **kwargs}


def sizes_of(arguments: Mapping[str, Any], spec: Any) -> dict[int, TensorSizes]:
    """By `id`, for each tensor among the arguments."""
    found: dict[int, TensorSizes] = {}
    if isinstance(spec, (list, tuple)):
        if len(spec) > len(arguments):
            why = f"it has {len(spec)} items for the parameters {', '.join(arguments)}; what `*args` takes is a tuple in one item"
            raise _unfit("dynamic_shapes", why)
        spec = dict(zip(arguments, spec, strict=False))
    if spec is not None and not isinstance(spec, Mapping):
        raise _unfit("dynamic_shapes", f"it is a {type(spec).__name__}, not a dict by parameter or a tuple by position")
    _check_names("dynamic_shapes", spec or {}, arguments)
    for name, value in arguments.items():
        _walk(name, value, (spec or {}).get(name), found)
    _check_roots(found)
    return found


def _walk(path: str, value: Any, spec: Any, found: dict[int, TensorSizes]) -> None:
    if isinstance(value, torch.Tensor):
        found[id(value)] = TensorSizes(path, _of_tensor(path, value, spec))
        return
    children = children_of(value)
    if children is None:
        if spec is not None and spec is not STATIC:
            raise _unfit(path, f"it is a {type(value).__name__}, which is a constant of the exported program")
        return
    for (label, child), part in zip(children.items(), _parts(path, children, value, spec), strict=True):
        _walk(path + label, child, part, found)


def children_of(value: Any) -> dict[str, Any] | None:
    """By how they are reached; None of a leaf."""
    if type(value) not in pytree.SUPPORTED_NODES and not pytree.is_namedtuple_instance(value):
        return None
    known = pytree.SUPPORTED_NODES.get(type(value))
    if known is not None and known.flatten_with_keys_fn is None:  # registered without names
        children, _ = pytree.tree_flatten(value, is_leaf=lambda one: one is not value)
        return {f"[{place}]": child for place, child in enumerate(children)}
    pairs, _ = pytree.tree_flatten_with_path(value, is_leaf=lambda one: one is not value)
    return {pytree.keystr(path): child for path, child in pairs}


def leaves_of(value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves, and how each is reached."""
    children = children_of(value)
    if children is None:
        yield "", value
        return
    for label, child in children.items():
        for path, leaf in leaves_of(child):
            yield label + path, leaf


def _parts(path: str, children: Mapping[str, Any], value: Any, spec: Any) -> list[Any]:
    """The spec of each child."""
    if spec is None or isinstance(spec, _Word):
        return [spec] * len(children)
    if isinstance(value, Mapping) and isinstance(spec, Mapping):
        _check_names(path, spec, value)
        return [spec.get(key) for key in value]
    if isinstance(spec, Mapping) and all(type(key) is str for key in spec):
        by_attribute = {label.lstrip("."): None for label in children}
        _check_names(path, spec, by_attribute)
        return [spec.get(name) for name in by_attribute]
    if type(spec) is type(value) and not isinstance(spec, (list, tuple)):  # of a registered class, made of sizes
        spec = list((children_of(spec) or {}).values())
    if not isinstance(spec, (list, tuple)) or len(spec) != len(children):
        raise _unfit(path, f"it has {len(children)} items, and `{spec!r}` is said of it")
    return list(spec)


def _check_names(path: str, spec: Mapping[Any, Any], known: Mapping[Any, Any]) -> None:
    unknown = [key for key in spec if key not in known]
    if unknown:
        raise _unfit(path, f"there is no {unknown[0]!r}; there are " + ", ".join(map(repr, known)))


def _unfit(path: str, why: str) -> ConstraintError:
    return _wrong(f"dynamic_shapes does not fit `{path}`", why, "follow the arguments: a dict, tuple or None for each")


def _of_tensor(path: str, tensor: torch.Tensor, spec: Any) -> tuple[Size, ...]:
    rank = tensor.dim()
    if spec is None or isinstance(spec, _Word):
        return (spec or STATIC,) * rank
    if isinstance(spec, Mapping):
        for dim in spec:
            if type(dim) is not int or not -rank <= dim < rank:
                raise _unfit(path, f"it has {rank} dimensions, and no dimension {dim!r}")
        said = {dim % rank: one for dim, one in spec.items()}
        items = [said.get(dim) for dim in range(rank)]
    elif isinstance(spec, (list, tuple)) and len(spec) == rank:
        items = list(spec)
    else:
        raise _unfit(path, f"it is a tensor of {rank} dimensions, and `{spec!r}` is said of it")
    return tuple(_size(path, tensor.shape[dim], dim, one) for dim, one in enumerate(items))


def _size(path: str, now: int, dim: int, said: Any) -> Size:
    if said is None or type(said) is int and said == now:
        return STATIC
    if isinstance(said, str):
        said = Dim(said)
    if type(said) is int:
        raise _unfit(path, f"dimension {dim} is {now} in the example, not {said}")
    if not isinstance(said, (Dim, Derived, _Word)):
        raise _unfit(path, f"`{said!r}` is said of dimension {dim}: a Dim, a*Dim + b, AUTO, STATIC or None is meant")
    return said


def root_of(size: Size) -> Dim | None:
    return size if isinstance(size, Dim) else size.root if isinstance(size, Derived) else None


def _check_roots(found: Mapping[int, TensorSizes]) -> None:
    """One name has the same bounds everywhere."""
    roots: dict[str, Dim] = {}
    for one in found.values():
        for size in one.sizes:
            root = root_of(size)
            if root is not None and roots.setdefault(root.name, root) != root:
                raise _wrong(
                    f"`{root.name}` is two different sizes", f"{roots[root.name]!r} and {root!r} have one name",
                    "give one of them another name",
                )  # fmt: skip
