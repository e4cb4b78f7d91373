"""Random expressions: canonical forms, texts, ranges, facts and proofs agree with Python's own arithmetic."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.symbolic.checks import check_random


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_shrinkable_examples(data):
    check_random(lambda n: data.draw(st.integers(0, n - 1)))


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_random_examples(random):
    check_random(random.randrange)
