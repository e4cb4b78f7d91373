"""The table of programs with constraints: what is said, and that what is advised works."""

import pytest
import torch
from torch.utils import _pytree as pytree

import pliant
from exporting.programs import ROWS
from pliant.errors import ConstraintError


def exported(row, said):
    return pliant.export(row.program, row.at(*row.sizes[0]), dynamic_shapes=said, beyond=row.beyond)


def advised(error):
    """The `dynamic_shapes` that the message ends with."""
    scope = {"pliant": pliant}
    exec(error.do.partition("pass\n")[2], scope)
    return scope["dynamic_shapes"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_is_said_or_advised_works(row):
    said = row.said
    if row.message:
        with pytest.raises(ConstraintError) as caught:
            exported(row, said)
        assert row.message in str(caught.value)
        assert "programs.py:" in str(caught.value), "the line that needs it"
        said = advised(caught.value)
    program = exported(row, said)
    for size in row.sizes:
        args = row.at(*size)
        wanted = pytree.tree_leaves(row.program(*args))
        found = pytree.tree_leaves(program(*args))
        for a, b in zip(wanted, found, strict=True):
            assert type(a) is type(b)
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    if row.wrong is not None:
        with pytest.raises((ConstraintError, RuntimeError)):
            program(*row.at(*row.wrong))
