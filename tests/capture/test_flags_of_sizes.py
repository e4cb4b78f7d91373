"""Comparisons of sizes given to PyTorch as flags: the truth is guarded, the sizes stay symbolic."""

import functools
import itertools
import random

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

import pliant
import short_stack
from pliant.debug import events


def attention(x):
    return F.scaled_dot_product_attention(x, x, x, is_causal=x.shape[2] > 1)


def keeps_dimension(x):
    return x.sum(-1, keepdim=x.shape[2] > 1)


def flag_by_position(x):
    return torch.sum(x, (0,), x.shape[2] > 1)


def inside_python(x):
    return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=x.shape[2] > 1)


def two_flags(x):
    return torch.topk(x, 2, -1, x.shape[2] > 1, sorted=not x.shape[2] == 1).values


def as_value(x):
    return torch.full((2,), x.shape[2] > 1)


def negated(x):
    return x.sum(-1, keepdim=torch.sym_not(x.shape[2] == 1))


PROGRAMS = (attention, keeps_dimension, flag_by_position, inside_python, two_flags, as_value, negated)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_one_graph_for_all_sizes_of_one_truth(program):
    pliant.reset()
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for length, recompiles in ((5, 0), (7, 1), (9, 0), (6, 0), (1, 1), (8, 0)):
        x = torch.randn(2, 3, length, 4)
        with events.collect("recompile") as found:
            torch.testing.assert_close(compiled(x), program(x))
        assert len(found) == recompiles, length


def test_a_truth_that_only_data_tells_is_no_flag():
    def program(x):
        return x.sum(0, keepdim=(x > 0).nonzero().shape[0] > 1)

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for x in (torch.ones(3), -torch.ones(3), torch.tensor([1.0, -1.0, -1.0])):
        torch.testing.assert_close(compiled(x), program(x))
    assert set(pliant.stats()["break_reasons"]) == {"data-dependent"}


def _flags(op):
    """(a program that takes the sample's tensors and a size, the tensors) for each flag of the operator's samples."""
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), 8):
        values, tree = tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        for place, flag in enumerate(values):
            if type(flag) is bool:
                yield functools.partial(_with_flag, op, values, tree, place), tensors


def _first_flags(op):
    return [*itertools.islice(_flags(op), 2)]


def _with_flag(op, values, tree, place, tensors, sized):
    given = iter(tensors)
    filled = [next(given) if isinstance(value, torch.Tensor) else value for value in values]
    filled[place] = sized.shape[0] > 2 if values[place] else sized.shape[0] < 2
    first, args, kwargs = tree_unflatten(filled, tree)
    return op.op(first, *args, **kwargs)


@pytest.mark.parametrize("part", range(2))
def test_flags_of_operators_are_one_graph_for_all_sizes(part):
    """A sample of the flags of all operators that PyTorch's own tests know."""
    operators = [op for op in op_db if torch.float32 in op.dtypes and "empty" not in op.name and "sparse" not in op.name]
    for op in random.Random(part).sample(operators, 40):
        for program, tensors in short_stack.called(_first_flags, op):
            pliant.reset()
            compiled = pliant.compile(lambda tensors, sized, program=program: program(tensors, sized), backend="eager")
            for size in (5, 7, 9):
                outcomes = []
                for function in (compiled, program):
                    torch.manual_seed(0)
                    outcomes.append(function([one.clone() for one in tensors], torch.ones(size)))
                torch.testing.assert_close(*outcomes, equal_nan=True)
            found = pliant.stats()
            assert (found["graphs"], found["graph_breaks"], found["fallbacks"]) == (2, 0, 0), (op.name, found)
