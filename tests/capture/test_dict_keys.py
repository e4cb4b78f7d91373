"""Dictionaries of the program whose keys have no literal."""

import enum

import pytest
import torch
from tests.capture.against_eager import check


class Mode(str, enum.Enum):
    GREEDY = "greedy"
    SAMPLE = "sample"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


TABLES = {
    "text enum": ({Mode.GREEDY: 2.0, Mode.SAMPLE: 3.0}, Mode.SAMPLE),
    "number enum": ({Level.LOW: 2.0, Level.HIGH: 3.0}, Level.HIGH),
    "tuple": ({(1, "a"): 2.0}, (1, "a")),
    "infinity": ({float("inf"): 2.0, -0.5: 1.0}, float("inf")),
    "type": ({int: 2.0}, int),
    "none": ({None: 2.0}, None),
    "dtype": ({torch.float32: 2.0}, torch.float32),
}


@pytest.mark.parametrize("name", TABLES)
def test_lookups_are_guarded(name):
    table, key = TABLES[name]

    def program(x):
        return x * table[key]

    check(program, torch.ones(3))
    before = table[key]
    table[key] = 7.0
    check(program, torch.ones(3))
    table[key] = before
