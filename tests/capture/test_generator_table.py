"""A sample of the table of generators."""

import pytest
from tests.capture.generator_table import difference, rows

SAMPLE = list(rows())[7::463]


@pytest.mark.parametrize("row", SAMPLE, ids=lambda row: row.name)
@pytest.mark.filterwarnings("ignore::pliant.errors.PliantWarning")
@pytest.mark.fallbacks_expected  # generators from outside that end or await
def test_side_effects_are_in_the_order_of_python(row):
    assert difference(row) is None
