"""Backwards of own functions, and hooks, read what is outside when they run."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import Function

import pliant
from pliant.errors import GraphBreakError

FACTOR = 2.0


class State:
    factor, table, tensor = 1.0, {"factor": 1.0}, torch.tensor(1.0)
    items, sizes, numbers = [1.0], (1,), {1.0}


INSTANCE, MODULE = State(), torch.nn.Module()


class ReadsLater(Function):
    @staticmethod
    def forward(ctx, x, read):
        ctx.read = read
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.read(), None


def _hooked(x, read):
    y = x.clone()
    y.register_hook(lambda g: g * read())
    return y * 1


READ_LATER = {
    "an attribute": lambda: State.factor, "an item": lambda: State.table["factor"],
    "a tensor": lambda: State.tensor, "a global": lambda: FACTOR,
}  # fmt: skip


@pytest.mark.parametrize("apply", [ReadsLater.apply, _hooked])
@pytest.mark.parametrize("what", READ_LATER)
def test_what_a_backward_reads_is_as_it_is_when_it_runs(what, apply):
    global FACTOR

    def gradients(call):
        global FACTOR
        found = []
        for number in (2.0, 3.0):
            x = torch.ones(3, requires_grad=True)
            result = call(x, READ_LATER[what])
            State.factor = State.table["factor"] = FACTOR = number * 10
            State.tensor = torch.tensor(number * 10)
            result.sum().backward()
            found.append(x.grad.tolist())
            State.factor = State.table["factor"] = FACTOR = 2.0
            State.tensor = torch.tensor(2.0)
        return found

    def program(x, read):
        return apply(x, read)

    try:
        assert gradients(pliant.compile(program)) == gradients(program)
        with pytest.raises(GraphBreakError, match="read-later"):
            pliant.compile(program, fullgraph=True)(torch.ones(3, requires_grad=True), READ_LATER[what])
    finally:
        FACTOR = 2.0


def test_constants_that_modules_name_are_part_of_the_program():
    read = lambda: math.pi + torch.e - np.inf + math.sqrt(2 / math.pi)  # noqa: E731
    for apply in (ReadsLater.apply, _hooked):
        pliant.reset()
        x = torch.ones(3, requires_grad=True)
        compiled = pliant.compile(lambda x, apply=apply: apply(x, read), fullgraph=True)
        assert torch.autograd.grad(compiled(x).sum(), x)[0].tolist() == [-math.inf] * 3


def _by_grad_mode():
    return 2.0 if torch.is_grad_enabled() else 3.0


@pytest.mark.parametrize("apply", [ReadsLater.apply, _hooked])
def test_backwards_are_asked_anew_whether_gradients_of_gradients_are_wanted(apply):
    pliant.reset()
    compiled = pliant.compile(lambda x: apply(x, _by_grad_mode))
    x = torch.ones(3, requires_grad=True)
    for graph, factor in ((False, 3.0), (True, 2.0)):
        assert torch.autograd.grad(compiled(x).sum(), x, create_graph=graph)[0].tolist() == [factor] * 3


def test_blocks_in_a_backward_that_set_the_mode_ask_nothing_of_the_world():
    def read():
        with torch.enable_grad():
            inner = torch.full((), 2.0, requires_grad=True)
            return torch.autograd.grad(inner**2 * _by_grad_mode(), inner)[0]

    compiled = pliant.compile(lambda x: ReadsLater.apply(x, read), fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    assert torch.autograd.grad(compiled(x).sum(), x)[0].tolist() == [8.0] * 3


def _stored_outside(x, apply):
    State.factor = 2.0
    return apply(x, lambda: State.factor), lambda: setattr(State, "factor", 7.0)


def _read_before(x, apply):
    kept = list(State.table.values())
    return apply(x * kept[0], lambda: sum(State.table.values())), lambda: State.table.update(factor=7.0)


def _missing_item():
    try:
        return State.table["new"]
    except KeyError:
        return 2.0


ASKED_LATER = {
    "a length": lambda: float(len(State.items)), "the length of a tuple": lambda: float(len(State.sizes)),
    "a key": lambda: 3.0 if "new" in State.table else 2.0, "a key of a field": lambda: 3.0 if "new" in vars(INSTANCE) else 2.0,
    "a default": lambda: State.table.get("new", 2.0), "a missing item": _missing_item,
    "a missing attribute": lambda: getattr(INSTANCE, "new", 2.0), "a module's": lambda: 3.0 if hasattr(MODULE, "new") else 2.0,
    "a member": lambda: 3.0 if 7.0 in State.numbers else 2.0, "all members": lambda: sum(2.0 for _ in State.numbers),
}  # fmt: skip


@pytest.mark.parametrize("what", ASKED_LATER)
def test_what_is_there_is_asked_when_a_backward_runs(what):
    def gradients(call):
        State.items, State.sizes, State.numbers, State.table = [1.0], (1,), {1.0}, {"factor": 1.0}
        vars(INSTANCE).pop("new", None), vars(MODULE).pop("new", None)
        x = torch.ones(3, requires_grad=True)
        result = call(x, ASKED_LATER[what])
        State.items.append(3.0)
        State.sizes, State.table["new"], INSTANCE.new, MODULE.new = (1, 2, 3), 7.0, 7.0, 7.0
        State.numbers.add(7.0)
        result.sum().backward()
        return x.grad.tolist()

    for apply in (ReadsLater.apply, _hooked):
        program = lambda x, read, apply=apply: apply(x, read)  # noqa: E731
        assert gradients(pliant.compile(program)) == gradients(program)


def _item_changed(x, apply):
    made = [2.0]
    y = apply(x, lambda: made[0])
    made[0] = 5.0
    return y, bool


def _variable_changed(x, apply):
    factor = 2.0
    y = apply(x, lambda: factor)
    factor = 5.0
    return y, bool


def _field_changed(x, apply):
    made = State()
    made.factor = 2.0
    y = apply(x, lambda: made.factor)
    made.factor = 5.0
    return y, bool


def _changed_by_the_caller(x, apply):
    made = {"factor": 2.0}
    return apply(x, lambda: made["factor"]), lambda: made.update(factor=7.0)


def _changed_behind_a_break(x, apply):
    factor = 2.0
    y = apply(x, lambda: factor)
    pliant.graph_break()
    factor = 5.0
    return y, bool


def _counts(x, apply):
    made = State()
    made.factor = 0.0

    def read():
        made.factor += 1.0
        return made.factor

    return apply(x, read) * (1 + made.factor), bool


def _in_a_class_made_here(x, apply):
    factor = 2.0

    class Made(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * factor

    y = Made.apply(x)
    factor = 5.0
    return y, bool


CHANGED_LATER = [
    _stored_outside, _read_before, _item_changed, _variable_changed, _field_changed, _changed_by_the_caller,
    _changed_behind_a_break, _counts, pytest.param(_in_a_class_made_here, marks=pytest.mark.fallbacks_expected),
]  # fmt: skip


@pytest.mark.parametrize("program", CHANGED_LATER)
def test_what_the_trace_made_or_stored_is_read_when_a_backward_runs(program):
    def gradients(call):
        State.factor = State.table["factor"] = 1.0
        found = []
        for apply in (ReadsLater.apply, _hooked):
            x = torch.ones(3, requires_grad=True)
            result, change = call(x, apply)
            change()
            result.sum().backward()
            found.append(x.grad.tolist())
        State.factor = State.table["factor"] = 1.0
        return found

    assert gradients(pliant.compile(program)) == gradients(program)


def test_what_nothing_changes_any_more_is_part_of_the_program():
    def program(x, apply):
        factors, made = [2.0], State()
        made.shape = tuple(x.shape)
        return apply(x, lambda: factors[0] * made.shape[0])

    for apply in (ReadsLater.apply, _hooked):
        x = torch.ones(3, requires_grad=True)
        compiled = pliant.compile(program, fullgraph=True)
        assert torch.autograd.grad(compiled(x, apply).sum(), x)[0].tolist() == [6.0] * 3
