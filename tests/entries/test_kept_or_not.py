"""What is kept of a table of small programs: all but what is listed with its reason."""

import pytest
from tests.entries import kept_or_not

import pliant


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    with pliant.config.patch(strict=True):
        yield
    pliant.reset()


@pytest.mark.parametrize("name", kept_or_not.PROGRAMS)
def test_the_next_process_finds_what_is_not_listed(name, tmp_path):
    told = kept_or_not.processes(name, str(tmp_path))
    if name not in kept_or_not.NOT_KEPT:
        assert told == ("kept", "found")
    else:
        assert told[0] == told[1] and told[0].startswith(kept_or_not.NOT_KEPT[name])
