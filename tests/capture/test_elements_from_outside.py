"""Arrays and buffers from outside whose elements PyTorch or C code reads, and indexes that are arrays of NumPy."""

import array
import warnings

import numpy as np
import pytest
import torch

import pliant

MADE = {
    "uint16": lambda k: np.arange(k, k + 3, dtype="u2"),
    "swapped": lambda k: np.arange(k, k + 3, dtype=">i4"),
    "negative step": lambda k: np.arange(k, k + 3)[::-1],
    "objects": lambda k: np.array([k, 2], dtype=object),
    "masked": lambda k: np.ma.array([k, 1]),
    "array": lambda k: array.array("i", [k, 1]),
    "memoryview": lambda k: memoryview(bytes([k, 1])),
    "bytearray": lambda k: bytearray([k, 1]),
    "int64": lambda k: np.arange(k, k + 3),
}
READ = (
    "torch.tensor(g)", "torch.as_tensor(g)", "torch.ones(1).new_tensor(g)", "torch.arange(9)[g]", "torch.arange(9)[[g, g]]",
    "torch.ones(1) + g", "g[0]", "bytes(g)", "list(g)", "sum(g)", "max(g)", "1 in g", "torch.full((2,), g[0])", "len(g)",
)  # fmt: skip
INDEXES = ("f4", "f8", "i8", "i4", "i2", "i1", "u1", "?", "u2", "c8")


def outcome(function, *arguments):
    try:
        with warnings.catch_warnings(action="ignore"):
            return str(function(*arguments))
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("made", MADE)
def test_elements_that_are_read(made):
    for text in READ:
        program = eval(f"lambda x, g: {text}", {"torch": torch})
        pliant.reset()
        compiled = pliant.compile(program, backend="eager")
        for k in (1, 2, 3):
            assert outcome(compiled, 0, MADE[made](k)) == outcome(program, 0, MADE[made](k)), text


def read(x, g):
    try:
        return x[g], x[None, g], x[g,]
    except IndexError:
        return "refused"


def written(x, g):
    try:
        y = x.clone()
        y[g] = 7
        return y
    except IndexError:
        return "refused"


@pytest.mark.spread(2, "dtype", "program")
@pytest.mark.parametrize("dtype", INDEXES)
@pytest.mark.parametrize("program", [read, written])
def test_arrays_as_indexes(program, dtype):
    for elements in ([1, 0, 1, 1, 0], [1], [], 3, [[1, 0], [0, 1]]):
        pliant.reset()
        compiled = pliant.compile(program, backend="eager")
        for more in (0, 1, 1):
            index = np.asarray(elements, dtype=dtype)
            index = (index if dtype == "?" else index + index.dtype.type(more))[()]
            assert outcome(compiled, torch.arange(5.0), index) == outcome(program, torch.arange(5.0), index)
