"""A part of the alias matrix: every action in every mode, and cases whose difference from eager was found by it."""

import pytest
from tests.autograd.alias_matrix import run_case, sample

FOUND = [
    ("derived", "same", "clones", "no_grad"),  # a view that says it requires grad, and has no gradient
    ("columns", "apart", "write_no_grad", "grad"),  # a view that is written without autograd has a new function
    ("plain", "base", "interleaved", "grad"),  # a backward that is an error reaches the inputs that it would have
    ("plain_slice", "apart", "detach_of_input", "grad"),  # views cannot be detached in place
    ("piece", "neighbour", "write_y", "grad"),  # one of several views, and a write beside it
    ("empty", "transpose", "write_y", "grad"),  # no element is shared, but the version is
    ("inference", "apart", "detach_", "grad"),  # tensors that autograd refuses to save
    ("inference", "same", "write_view_of_input", "no_grad"),  # and that may not be written
    ("plain", "apart", "enabled_part", "no_grad"),  # gradients are turned on inside
    ("leaf", "apart", "enabled_part", "inference"),  # where nothing has any
]

FOUND_WITH_KERNELS = [
    ("empty", "apart", "t_", "grad"),  # strides of results without elements
    ("leaf", "rows", "write_view_of_view", "inference"),  # whether a tensor is a view is asked in inference mode
]


@pytest.mark.parametrize("case", [*FOUND, *sample(230)], ids="/".join)
def test_case_is_as_in_eager(case):
    wrong, _ = run_case(*case)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("case", [*FOUND_WITH_KERNELS, *sample(300, seed=1)[240:]], ids="/".join)
def test_case_is_as_in_eager_with_kernels(case):
    wrong, _ = run_case(*case, backend="pliant")
    assert not wrong, "\n".join(wrong)
