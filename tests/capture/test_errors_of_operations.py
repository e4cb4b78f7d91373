"""Errors of operations of the interpreter itself: which one, with which words, and what it leaves."""

import pytest
import torch

import pliant


class Point:
    __match_args__ = ("x",)

    def __init__(self, x):
        self.x = x


def _too_many_patterns(x):
    match Point(1):
        case Point(_, _):
            return 1


def _no_such_attribute(x):
    match Point(1):
        case Point(x=_, y=_):
            return 1
    return 2


def _no_such_key(x):
    match {"a": 1}:
        case {"a": _, "b": _}:
            return 1
    return 2


def _too_few_for_a_star(x):
    first, second, *rest = (1,)
    return first, second, rest


def _deleted_twice(x):
    value = 1
    del value  # noqa: F821
    del value  # noqa: F821


def _deleted_variable_of_a_closure(x):
    value = 1

    def inner():
        return value  # noqa: F821

    del value  # noqa: F821
    return inner()


def _no_such_name_in_a_class(x):
    class Holder:
        del missing  # noqa: F821

    return Holder


PROGRAMS = [
    _too_many_patterns,
    _no_such_attribute,
    _no_such_key,
    _too_few_for_a_star,
    _deleted_twice,
    _deleted_variable_of_a_closure,
    _no_such_name_in_a_class,
]


def _outcome(function):
    try:
        return function(torch.ones(1))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_they_are_those_of_eager(program):
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    assert _outcome(compiled) == _outcome(compiled) == _outcome(program)


REFUSED = {
    "another size": lambda w: setattr(w, "grad", torch.ones(2)),
    "another dtype": lambda w: setattr(w, "grad", torch.ones(3, dtype=torch.float64)),
    "no tensor": lambda w: setattr(w, "grad", 3),
    "itself": lambda w: setattr(w, "grad", w),
    "more gradients than a number takes": lambda w: torch.autograd.grad(w.sum(), w, torch.ones(2)),
    "fewer gradients": lambda w: torch.autograd.grad((w.sum(), w.prod()), w, (None,)),
    "a batch of gradients": lambda w: torch.autograd.grad(w.sum(), w, torch.ones(2, 2), is_grads_batched=True),
    "gradients of another size": lambda w: w.sum().backward(torch.ones(4)),
    "of a complex number": lambda w: (w * 1j).sum().backward(),
    "an array of conjugates": lambda w: (w.detach() * 1j).conj().numpy(),
    "an array of negated elements": lambda w: (w.detach() * 1j).conj().imag.numpy(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_tensors_refuse_is_refused_once_what_came_before_is_done(name):
    pliant.reset()
    use, found = REFUSED[name], []

    def program(w, seen):
        seen.append(1)
        use(w)
        return w * 2

    for function in (program, pliant.compile(program, backend="aot_eager")):
        w, seen = torch.ones(3, requires_grad=True), []
        with pytest.raises((RuntimeError, TypeError)) as caught:
            function(w, seen)
        found.append((caught.type, str(caught.value), seen, w.grad))
    assert found[1] == found[0] and found[0][2:] == ([1], None)


def _import_of_nothing():
    from math import nothing  # noqa: F401


# Refused within the program, which catches the error: what, and how it is worded.
CAUGHT = {
    "a part of a leaf is written": lambda w: w[0].add_(1),
    "an expanded leaf is written": lambda w: w.expand(2, 3).mul_(2),
    "one of several parts is written": lambda w: (w * 2).split(2)[0].add_(1),
    "a view made under no_grad is written": lambda w: torch.no_grad()(w.view)(3).add_(1),
    "its own transpose is copied to a tensor": lambda w: (y := torch.ones(3, 4)).copy_(y.t()),
    "gradients of nothing": lambda w: torch.autograd.grad(w.sum(), []),
    "gradients of a graph that is freed": lambda w: [(y := (w**2).sum()).backward(), y.backward()],
    "a seed that is no number": lambda w: torch.manual_seed("a"),
    "a batch along no dimension": lambda w: torch.vmap(lambda x: x, in_dims=5)(w.detach()),
    "tangents that are no tuple": lambda w: torch.func.jvp(torch.sin, w.detach(), w.detach()),
    "an import of a name that is not there": lambda w: _import_of_nothing(),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_errors_that_the_program_catches_are_those_of_eager(name):
    pliant.reset()
    use = CAUGHT[name]

    def program(w):
        try:
            use(w)
        except (RuntimeError, ValueError, ImportError) as error:
            return type(error), str(error), w * 2
        return None

    compiled = pliant.compile(program, backend="aot_eager")
    found = [function(torch.ones(3, requires_grad=True))[:2] for function in (program, compiled)]
    assert found[1] == found[0]


def test_writes_of_the_data_of_what_the_derivative_reads_are_not_refused():
    def program(w, x):
        y = w * x
        x.data.mul_(2)
        try:
            y.sum().backward()
        except RuntimeError as error:
            return str(error)
        return w.grad

    found = []
    for function in (program, pliant.compile(program, backend="aot_eager")):
        found.append(function(torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)))
    assert found[1].tolist() == found[0].tolist() == [2, 2, 2]


def test_errors_in_inference_mode_are_those_of_eager():
    """Tensors of this mode do not count how often they were written."""

    def program(x, y):
        try:
            return x @ y
        except RuntimeError as error:
            return str(error)

    pliant.reset()
    with torch.inference_mode():
        x = torch.ones(2, 3)
        assert pliant.compile(program)(x, x) == program(x, x)
    assert pliant.stats()["fallbacks"] == 0


@pytest.mark.fallbacks_expected
def test_what_was_drawn_before_an_error_is_drawn():
    def program(x):
        try:
            torch.nn.functional.gumbel_softmax(x, dim=7)
        except IndexError:
            x = x * 2
        return x, torch.rand(2)

    found = []
    for function in (program, pliant.compile(program, backend="aot_eager")):
        torch.manual_seed(0)
        found.append([one.tolist() for one in function(torch.ones(2))])
    assert found[1] == found[0]


@pytest.mark.fallbacks_expected
def test_targets_of_other_dtypes_are_refused_before_anything_is_written():
    def program(x, target, written):
        loss = torch.nn.functional.cross_entropy(x, target)
        written.detach().mul_(2)
        return loss

    pliant.reset()
    written = torch.ones(2)
    with pytest.raises(RuntimeError, match="target dtype|scalar type"):
        pliant.compile(program, backend="aot_eager")(torch.ones(4, 3, requires_grad=True), torch.ones(4), written)
    assert not written._version and not pliant.stats()["fallbacks"]
