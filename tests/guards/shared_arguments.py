"""What a program can do with two arguments for which it can matter that they are one object.

Each program is called with two objects and with one object twice, in both orders, as it is and behind a graph break.

    python -m tests.guards.shared_arguments [--backend pliant]     every program with every kind of object
"""

from __future__ import annotations

import argparse
import itertools
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import torch

import pliant

Program = Callable[[Any, Any], Any]
TENSOR_PROGRAMS: dict[str, Program] = {}
OBJECT_PROGRAMS: dict[str, Program] = {}


def on_tensors(program: Program) -> Program:
    TENSOR_PROGRAMS[program.__name__] = program
    return program


def on_objects(program: Program) -> Program:
    OBJECT_PROGRAMS[program.__name__] = program
    return program


def on_both(program: Program) -> Program:
    return on_tensors(on_objects(program))


# ---- read and returned
@on_tensors
def reads(a, b):
    return a * 2 + b


@on_both
def returns(a, b):
    return [a, b], {"k": (b, a)}


@on_tensors
def returns_views(a, b):
    return a[:2], b[1:], a.view_as(a), a.detach(), b.detach()


# ---- compared
@on_both
def asks_is(a, b):
    return 1 if a is b else 2


@on_both
def asks_is_not(a, b):
    kept = [a]
    for one in (a, b):
        if all(one is not other for other in kept):
            kept.append(one)
    return len(kept)


@on_both
def asks_id(a, b):
    return id(a) == id(b), len({id(a), id(b)})


@on_both
def asks_weak_reference(a, b):
    try:
        return weakref.ref(a) is weakref.ref(b)
    except TypeError:
        return None


@on_tensors
def asks_hash(a, b):
    return hash(a) == hash(b)


@on_both
def is_key(a, b):
    try:
        return {a: 2}.get(b, 5), len({a, b}), b in {a: 1}
    except TypeError:
        return None


@on_both
def stores_by_key(a, b):
    table = {}
    try:
        table[a] = 1
        table[b] = 2
    except TypeError:
        pass
    return sum(table.values())


@on_both
def stays_in_a_set(a, b):
    try:
        left = set([a])  # noqa: C405
        left.discard(b)
    except TypeError:
        return None
    return len(left)


@on_tensors
def asks_in(a, b):
    try:
        return a in [b], [b, a].index(a), [a].count(b), (a,) == (b,)
    except RuntimeError:
        return 7


@on_tensors
def asks_base(a, b):
    return a[:]._base is b


@on_tensors
def asks_memory(a, b):
    return (
        a.is_set_to(b),
        a.data_ptr() == b.data_ptr(),
        a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr(),
    )


# ---- written
@on_tensors
def adds(a, b):
    if a.is_leaf and a.requires_grad:
        return a.detach().add_(1) + b.detach()
    a.add_(1)
    return a * 1 + b * 2


@on_tensors
def adds_without_gradients(a, b):
    with torch.no_grad():
        b.mul_(3)
        return a + b


@on_tensors
def writes_out(a, b):
    with torch.no_grad():
        return torch.mul(a, 2, out=b) + a


@on_tensors
def writes_item(a, b):
    with torch.no_grad():
        b[0] = 9
    return a.detach().sum() + b.detach()


@on_tensors
def writes_data(a, b):
    b.data.add_(1)
    return a + b


@on_tensors
def replaces_data(a, b):
    b.data = torch.full((4,), 5.0)
    return a + b


@on_tensors
def counts_writes(a, b):
    before = b._version
    with torch.no_grad():
        a.add_(1)
    return b._version - before


@on_tensors
def changes_shape(a, b):
    if not a.requires_grad:
        a.unsqueeze_(0)
    return b.dim()


@on_both
def stores_attribute(a, b):
    try:
        a.more = 3
    except AttributeError:
        return None
    found = getattr(b, "more", 1)
    del a.more
    return found


@on_tensors
def stores_gradient(a, b):
    a.grad = torch.ones(4) * 4
    return b.detach() * (3 if b.grad is None else b.grad)


# ---- differentiated
@on_tensors
def requires(a, b):
    a.requires_grad_()
    return (b * 2).requires_grad, b.requires_grad


@on_tensors
def gradient_of_one(a, b):
    return torch.autograd.grad((a * b * b).sum(), a)[0] if a.requires_grad else a


@on_tensors
def gradient_of_both(a, b):
    return torch.autograd.grad((a * b * b).sum(), (a, b), allow_unused=True) if b.requires_grad else b


@on_tensors
def backward(a, b):
    if not (a.requires_grad and a.is_leaf and b.is_leaf):
        return a
    (a * b * b).sum().backward()
    return a.grad * 1, b.grad * 1


@on_tensors
def hooked(a, b):
    if not (a.requires_grad and b.is_leaf):
        return a
    handle = a.register_hook(lambda g: g * 3)
    (b * 2).sum().backward()
    handle.remove()
    return b.grad * 1


@on_tensors
def transformed(a, b):
    return torch.func.grad(lambda u, v: (u * v * v).sum())(a, b)


# ---- other objects that are written
@on_objects
def appends(a, b):
    if isinstance(a, list):
        a.append(5)
        return len(b), list(b)
    return None


@on_objects
def sets_item(a, b):
    if isinstance(a, (list, dict, numpy.ndarray)):
        a[0] = 7
        return [b[0], len(b)]
    return None


@on_objects
def adds_to_set(a, b):
    if isinstance(a, set):
        a.add(5)
        return len(b)
    return None


@on_objects
def sets_attribute(a, b):
    if isinstance(a, Box):
        a.value = [4]
        return b.value
    return None


@on_objects
def writes_attribute(a, b):
    if isinstance(a, Box):
        a.value.append(4)
        return list(b.value)
    return None


# ---- the kinds of pairs
class Box:
    def __init__(self) -> None:
        self.value = [1]


def _leaf() -> torch.Tensor:
    return torch.arange(4.0).requires_grad_()


def _made_per_call() -> Callable[[], int]:
    return lambda: 1


TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.arange(4.0),
    "leaf": _leaf,
    "computed": lambda: _leaf() * 1,
    "parameter": lambda: torch.nn.Parameter(torch.arange(4.0)),
}
OBJECTS: dict[str, Callable[[], Any]] = {
    "list": lambda: [1, 2],
    "dict": lambda: {0: 1, "k": 2},
    "set": lambda: {1, 2},
    "instance": Box,
    "array": lambda: numpy.arange(4.0),
    "function": _made_per_call,
}


def behind_break(program: Program) -> Program:
    """The program between graph breaks."""

    def resumed(a, b):
        before = a * 1 if isinstance(a, torch.Tensor) else 0
        pliant.graph_break()
        found = program(a, b)
        pliant.graph_break()
        return found, before

    return resumed


def described(value: Any, given: tuple[Any, Any]) -> Any:
    """A value with what it has to do with the arguments."""
    own = tuple(i for i, one in enumerate(given) if one is value)
    if isinstance(value, torch.Tensor):
        based = tuple(i for i, one in enumerate(given) if one is value._base)
        return "tensor", value.detach().tolist(), value.requires_grad, own, based
    if isinstance(value, (list, tuple)):
        return own, [described(one, given) for one in value]
    if isinstance(value, dict):
        return own, {key: described(one, given) for key, one in value.items()}
    if isinstance(value, numpy.ndarray):
        return own, value.tolist()
    if isinstance(value, Box):
        return own, described(value.value, given)
    return own, None if callable(value) else value


def outcome(function: Program, make: Callable[[], Any], same: bool) -> Any:
    """What a call gives, and what it leaves of its arguments."""
    first = make()
    given = (first, first if same else make())
    try:
        result = described(function(*given), given)
    except Exception as error:
        result = type(error)
    gradients = [one.grad for one in given if isinstance(one, torch.Tensor) and one.is_leaf and one.grad is not None]
    return result, [described(one, given) for one in given], [one.tolist() for one in gradients]


def differences(program: Program, make: Callable[[], Any], backend: str = "eager") -> list[str]:
    """Calls whose outcome is not eager's: [] if all is well."""
    wrong = []
    for order in ((False, True, False), (True, False, True)):
        compiled = pliant.compile(program, backend=backend)
        for same in order:
            expected, found = outcome(program, make, same), outcome(compiled, make, same)
            if expected != found:
                wrong.append(f"{program.__name__}, same: {same} of {order}\n  {expected}\n  {found}")
    return wrong


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="eager")
    backend = parser.parse_args(arguments).backend
    wrong = cases = 0
    for programs, kinds in ((TENSOR_PROGRAMS, TENSORS), (OBJECT_PROGRAMS, OBJECTS)):
        for program, (kind, make) in itertools.product(programs.values(), kinds.items()):
            for function in (program, behind_break(program)):
                pliant.reset()
                found = differences(function, make, backend)
                cases, wrong = cases + 1, wrong + bool(found)
                print(*(f"{program.__name__} on {kind}: {one}" for one in found), sep="\n", end="")
    print(f"{cases} cases, {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
