"""The list of core operators: what the documentation has, what PyTorch says of them."""

import re
from pathlib import Path

import torch

from pliant.exporting.core_operators import CORE, name_of
from pliant.exporting.decompositions import RULES

PAGE = Path(__file__).parents[2] / "docs" / "core-operators.md"


def listed(title):
    """The names under a title, and the count in it."""
    found = re.search(rf"## {title}: (\d+)\n.*?```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return int(found[1]), found[2].split()


def test_the_page_has_every_core_operator_and_counts_them():
    count, names = listed("The core")
    assert names == sorted(CORE) and count == len(CORE)


def test_the_page_has_every_operator_with_a_rule():
    count, names = listed("Operators that have a rule")
    assert names == sorted(map(name_of, RULES)) and count == len(RULES)


def test_core_operators_are_those_that_pytorch_tags():
    for name in CORE:
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
        assert torch.Tag.core in operator.tags and name_of(operator) == name
