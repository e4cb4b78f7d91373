"""Every one-construct program of the tables behaves as in eager; those marked whole are one graph."""

import pytest
from tests.capture.constructs import (  # noqa: F401  (fill the table)
    abstract_classes,
    containers,
    control,
    language,
    library,
    modules,
    objects,
    outside_state,
    own_lookup,
    python_rules,
    standard_library,
    torch_objects,
    user_containers,
)
from tests.capture.constructs.harness import PROGRAMS, check


@pytest.mark.filterwarnings("ignore:.*has been compiled 8 times")  # a comprehension that breaks in each turn
@pytest.mark.filterwarnings("ignore:(careful|old|an object)")
@pytest.mark.parametrize("item", PROGRAMS, ids=lambda p: p.name)
def test_construct(item):
    check(item)
