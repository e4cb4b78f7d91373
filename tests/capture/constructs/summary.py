"""Prints how many one-construct programs of each area run whole, with breaks, or are refused: `python -m tests.capture.constructs.summary`."""

import collections
import contextlib
import importlib
import io
import pkgutil
import warnings

from tests.capture import constructs
from tests.capture.constructs.harness import PROGRAMS, Program, inputs

import pliant
from pliant.debug import events


def outcome(item: Program) -> str:
    """What capture makes of a program's first call."""
    pliant.reset()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
        pliant.compile(item.function, backend="eager")(*inputs())
    stats = pliant.stats()
    if stats["fallbacks"]:
        return "refused"
    if events.events("skip"):  # nothing was captured: the call ran eagerly without a fallback being counted
        return "refused"
    return "breaks" if stats["graph_breaks"] else "whole"


def main() -> None:
    """Count and print."""
    warnings.simplefilter("ignore")
    for module in pkgutil.iter_modules(constructs.__path__):
        importlib.import_module(f"{constructs.__name__}.{module.name}")
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for item in PROGRAMS:
        result = outcome(item)
        counts[item.area][result] += 1
        counts["all"][result] += 1
        counts["all"]["meant whole"] += item.whole
        counts["all"]["meant whole and whole"] += item.whole and result == "whole"
    for area, row in counts.items():
        print(f"{area:14}", "  ".join(f"{name} {count}" for name, count in row.items()))


if __name__ == "__main__":
    main()
