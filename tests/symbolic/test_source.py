"""Locations of the user's lines."""

from pliant.source import SourceLocation, user_location


def test_location_is_the_caller():
    here = user_location()
    assert here.function == "test_location_is_the_caller"
    assert "here = user_location()" in str(here)


def test_a_line_that_cannot_be_read():
    assert str(SourceLocation("/no/such/train.py", 42, "step")) == "train.py:42 in step"
