"""Which tests are tried: of the combinations of a test's parameters a spread, each value of each beside others of the rest.

In:     `@pytest.mark.spread(every, *names)` on a test whose parameters of these names are crossed with each other.
Out:    `spread(items)`: those that are tried, and those that are left out. `sample(items)`: the same of all tests.
Holds:  the positions of a combination's values add up to a multiple of `every`; of three parameters with that many values,
        any two of their values meet. With PLIANT_TEST_ALL=1 all are tried, and a test that is asked for by its whole name is.
        With PLIANT_TEST_EVERY=50 one of fifty tests is.
"""

import os
from collections import defaultdict


def spread(items):
    """Tests that are tried, and those that are left out."""
    positions = defaultdict(dict)  # of the values of a test's parameter, by identity
    split = [], []
    for item in items:
        mark = item.get_closest_marker("spread")
        split[mark is not None and not _tried(item, positions, *mark.args)].append(item)
    return split


def _tried(item, positions, every, *names):
    total = 0
    for name in names:
        known = positions[item.path, item.originalname, name]
        total += known.setdefault(id(item.callspec.params[name]), len(known))
    return total % every == 0 or os.environ.get("PLIANT_TEST_ALL") == "1"


def sample(items):
    """One of so many tests as the environment says, and the others."""
    every = int(os.environ.get("PLIANT_TEST_EVERY", 1))
    return items[::every], [item for number, item in enumerate(items) if number % every]
