"""`copy.copy` and `copy.deepcopy`: what is new, what is shared, and where copied tensors lie."""

import copy
import copyreg
import functools

import pytest
import torch

import pliant

X = torch.arange(16.0).view(4, 4)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_partial_is_another_one(copied):
    def f(x, outside):
        own = functools.partial(torch.add, x, other=x)
        one, other = copied(own), copied(outside)
        return x * 2, one is own, one.args[0] is x, one.keywords["other"] is one.args[0], other is outside, other(x)

    outside = functools.partial(torch.mul, torch.ones(4))
    found, expected = pliant.compile(f)(X, outside), f(X, outside)
    assert found[1:5] == expected[1:5]
    assert torch.equal(found[5], expected[5])


def test_attributes_of_a_partial_are_copied():
    partial = functools.partial(max, 1)
    partial.note = [3]
    found = pliant.compile(lambda x, p: (x * 2, copy.copy(p)))(X, partial)[1]
    assert found is not partial
    assert found.note is partial.note


def test_a_deep_copy_of_a_frozenset_is_another_one():
    def f(x):
        own = frozenset((1, 2))
        return x * 2, copy.deepcopy(own) is own, copy.copy(own) is own

    assert pliant.compile(f)(X)[1:] == f(X)[1:]


@pytest.mark.fallbacks_expected  # memory that inputs share is written
def test_tensors_that_share_memory_share_that_of_the_copy():
    def f(x):
        whole, part = copy.deepcopy([x, x[1:]])
        whole.mul_(2)
        return whole, part

    for one, other in zip(pliant.compile(f)(X), f(X)):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "part",
    [lambda x: x[:, ::2], lambda x: x[:, :1].expand(4, 4), lambda x: x.diagonal(), lambda x: x[1:], lambda x: x.t(), lambda x: x * 2],
)
def test_a_deep_copy_lies_as_the_tensor_does(part):
    def f(x):
        return copy.deepcopy(part(x))

    found, expected = pliant.compile(f)(X), f(X)
    assert torch.equal(found, expected)
    assert (found.stride(), found.storage_offset()) == (expected.stride(), expected.storage_offset())


def copied_pairs(x):
    base = x.clone()
    return (base, base[1:]), (base, base), (base.t(), base), (base[0], base[1]), (base, base.clone()), (base.data, base)


@pytest.mark.fallbacks_expected  # memory that inputs share is written
def test_arguments_that_share_memory_share_that_of_the_copy():
    def f(x, y):
        one, other = copy.deepcopy((x, y))
        one.mul_(2)
        return one, other, one is other

    compiled = pliant.compile(f)
    for pair in copied_pairs(X):
        for one, other in zip(compiled(*pair), f(*pair)):
            if isinstance(one, bool):
                assert one == other
                continue
            assert torch.equal(one, other)
            assert (one.stride(), one.storage_offset()) == (other.stride(), other.storage_offset())


def test_copies_of_arguments_that_lie_alone_are_in_the_graph():
    pliant.reset()
    compiled = pliant.compile(lambda x, y: copy.deepcopy([x, y]), fullgraph=True, dynamic=True)
    for n in (3, 5, 7):
        compiled(torch.ones(n), torch.ones(n, 2))
    assert pliant.stats()["graphs"] == 1


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_what_is_stored_in_a_tensor_is_copied(copied):
    compiled = pliant.compile(lambda x: copied(x))
    marked, with_gradient = X.clone(), X.clone().requires_grad_()
    marked.note, with_gradient.grad = [1], X.clone()
    assert not compiled(X.clone().requires_grad_()).__dict__
    assert compiled(marked).note == [1]
    found, expected = compiled(with_gradient).grad, copied(with_gradient).grad
    assert (found is None) == (expected is None)
    parameter = torch.nn.Parameter(X.clone())
    parameter.note, parameter.grad = [1], X.clone()
    found, expected = compiled(parameter), copied(parameter)
    assert (found.__dict__, found.grad) == (expected.__dict__, expected.grad)


def test_a_memo_of_the_program_knows_the_copies():
    def f(x):
        memo = {}
        one, other = copy.deepcopy(x, memo), copy.deepcopy(x, memo)
        return one is other, len(memo), x * 2

    assert pliant.compile(f)(X)[:2] == f(X)[:2]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_texts_that_tell_sizes_are_copied_without_a_break(copied):
    def f(x):
        text = f"rows {x.shape[0]}"
        return copied(text), copied({"text": text})

    compiled = pliant.compile(f, fullgraph=True)
    for size in (2, 3, 4, 5):
        assert compiled(torch.ones(size)) == f(torch.ones(size))


class Registered:
    def __init__(self, v=1.0):
        self.v = v


@pytest.mark.fallbacks_expected
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_class_may_be_copied_by_a_function_that_is_registered(copied, monkeypatch):
    pliant.reset()
    one = Registered(2.0)
    compiled = pliant.compile(lambda x: x * copied(one).v)
    assert torch.equal(compiled(X), X * 2)
    monkeypatch.setitem(copyreg.dispatch_table, Registered, lambda one: (Registered, (5.0,)))
    assert torch.equal(compiled(X), X * 5)


class Renamed:
    """As configurations that have other names for some of their attributes."""

    names = {"width": "size"}

    def __init__(self, size):
        self.size = size

    def __getattribute__(self, name):
        if name != "names" and name in super().__getattribute__("names"):
            name = super().__getattribute__("names")[name]
        return super().__getattribute__(name)


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy])
def test_objects_with_other_names_for_attributes(copies):
    one = Renamed(3)
    compiled = pliant.compile(lambda x: x * copies(one).width, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool], ids=str)
def test_parameters_of_integers_are_the_error_of_the_class(dtype):
    pliant.reset()

    def program(x):
        try:
            torch.nn.Parameter(x)
        except RuntimeError as error:
            return str(error), torch.nn.Parameter(x, requires_grad=False)

    x = torch.ones(3, dtype=dtype)
    assert pliant.compile(program, backend="eager", fullgraph=True)(x)[0] == program(x)[0]


class Restored:
    def __setstate__(self, state):
        LOG.append("set state")
        self.__dict__.update(state)


class Asked:
    def __getattr__(self, name):
        LOG.append(name)
        raise AttributeError(name)


LOG = []


@pytest.mark.parametrize("make", [Restored, Asked])
def test_copies_of_objects_without_attributes(make):
    def program(x, given):
        LOG.clear()
        one = make()
        copies = [copy.copy(one), copy.deepcopy([one, one]), copy.copy(given), copy.deepcopy(given)]
        one.late = 1
        copies.append(copy.deepcopy(one))
        return x + 1, [vars(each) for each in (*copies[1], copies[0], *copies[2:])], LOG[:]

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(1), make())[1:] == program(torch.ones(1), make())[1:]
