"""Guards as data say what their text says: for each kind, values that fulfil it and values that do not."""

import collections

import pytest
import torch

from pliant.guards.codegen import compile_guards
from pliant.guards.evaluate import holds
from pliant.guards.kinds import MISSING, ConstantItems, Guard, Kind, NumberOf, TensorFacts
from pliant.guards.sources import ArgSource, value_of


class Base:
    limit = 3


class Derived(Base):
    pass


def facts(t, **changed):
    shape = {"sizes": tuple(t.shape), "strides": t.stride()}
    found = {"cls": type(t), "dtype": t.dtype, "device": t.device, "requires_grad": t.requires_grad, **shape}
    return TensorFacts(**{**found, **changed})


_ONE = torch.ones(2, 3)
_NAN = float("nan")
_CONSTANTS = [0, 1, True, None, 0.0, -0.0, 1.0, _NAN, "a", b"a", (1, 2.0), (1, 2), [1], {"a": 1}, {"b": 1}, torch.float32]
_CONTAINERS = [[], [1], (1, 2), {}, {"a": 1}, {"b": 2, "a": 1}, {"a": 1, "b": 2}, "", "ab", collections.OrderedDict(a=1)]
_HOOKS = [{"h": {}}, {"h": {1: 2}}, {"h": collections.OrderedDict()}, {}, {"h": []}]
_TENSORS = [
    _ONE,
    _ONE.t(),
    torch.ones(3, 2),
    torch.ones(2, 4)[:, 1:],
    _ONE.double(),
    torch.nn.Parameter(torch.ones(2, 3)),
    torch.ones(2, 3, requires_grad=True),
    torch.ones(2, 3).to_sparse(),
    torch.ones(2, 3, dtype=torch.complex64),
    torch.ones(2, 3, dtype=torch.complex64).conj(),
    torch.ones(2, 3, device="meta"),
    torch._neg_view(_ONE),
]
CASES = {
    Kind.TYPE: ([1, True, Base(), Derived()], [int, bool, Base]),
    Kind.IDENTITY: ([None, True, Base, _ONE], [None, True, Base, _ONE]),
    Kind.EQUALS: (_CONSTANTS, _CONSTANTS),
    Kind.TENSOR: (
        _TENSORS,
        [facts(t) for t in (_ONE, _TENSORS[3], _TENSORS[5], _TENSORS[8])]
        + [facts(_ONE, sizes=(None, 3)), facts(_ONE, strides=None), facts(_ONE, strides=(3, None))]
        + [facts(_ONE, strides=None, storage_offset_zero=zero) for zero in (True, False)],
    ),
    Kind.LENGTH: (_CONTAINERS, [0, 1, 2]),
    Kind.KEYS: (_CONTAINERS[3:8], [(), ("a",), ("a", "b"), (1,)]),
    Kind.ITEMS: ([[], [1], [1.0], (1, 2), [1, 2]], [ConstantItems(()), ConstantItems((1,)), ConstantItems((2,), (1,))]),
    Kind.HAS_KEY: (_CONTAINERS[3:8], ["a", "b", 1]),
    Kind.NO_KEY: (_CONTAINERS[3:8], ["a", "b", 1]),
    Kind.EMPTY: (_CONTAINERS, [None]),
    Kind.ALL_EMPTY: (_HOOKS, [("h",)]),
    Kind.RANGE: ([range(3), range(0, 3, 2), [0, 1, 2]], [(0, 3, 1)]),
    Kind.TYPE_LOOKUP: (
        [Base, Derived, dict],
        [("limit", 3), ("limit", 4), ("limit", NumberOf(int)), ("limit", NumberOf(float)), ("other", MISSING), ("get", MISSING)],
    ),
}


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.name)
def test_a_guard_says_as_data_what_its_text_says(kind):
    values, expected = CASES[kind]
    seen = set()
    for value in values:
        for one in expected:
            guard = Guard(ArgSource(0, "a"), kind, one)
            by_text = compile_guards([guard]).check((value,), {})
            try:
                by_data = holds(guard, lambda source: value_of(source, (value,), {}))  # noqa: B023
            except (TypeError, KeyError, IndexError, RuntimeError):
                by_data = False
            assert by_data == by_text, (value, one)
            seen.add(by_text)
    assert seen == {True, False}


def test_guards_on_several_values_say_as_data_what_their_text_says():
    a, b = torch.ones(2), torch.ones(2)
    two = ArgSource(0, "a"), ArgSource(1, "b")
    guards = {
        Kind.SAME_AS: Guard(two[0], Kind.SAME_AS, two[1]),
        Kind.DISTINCT: Guard(None, Kind.DISTINCT, (two, ())),
        Kind.SEPARATE: Guard(None, Kind.SEPARATE, (two[:1], two[1:])),
    }
    for kind, guard in guards.items():
        for args in ((a, a), (a, b), (a, a.view(1, 2))):
            by_data = holds(guard, lambda source: value_of(source, args, {}))  # noqa: B023
            assert by_data == compile_guards([guard]).check(args, {}), (kind, args)


def test_a_kind_that_memory_does_not_tell_is_left_to_the_text():
    assert not holds(Guard(ArgSource(0, "a"), Kind.NUMBER_TYPE, int), lambda source: 1)
