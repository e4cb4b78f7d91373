"""What runs eagerly while a test runs that asked for compilation: a test that only looks at results would not notice.

In:     the record of events, whose totals `pliant.reset()` forgets.
Out:    `watching()`: a block around a test; `unasked()` of what it yields is why calls ran eagerly, and how often, unless the
        test looked into that itself: read `stats()["fallbacks"]` or its like, or collected the events.
"""

import contextlib
import sys
from collections import Counter
from pathlib import Path

from pliant.debug import events

KINDS = {"fallback", "recompile_limit"}
KEYS = {"fallbacks", "fallback_reasons", "recompile_limits"}
_HERE = str(Path(__file__).parent)


class _Watch:
    """Why calls ran eagerly, how often; whether the test asked."""

    def __init__(self):
        self.totals, self.before = Counter(), _told()
        self.asked = False

    def keep(self):
        """Add what happened since the totals were looked at last."""
        now = _told()
        self.totals += now - self.before
        self.before = now

    def note(self, named):
        self.asked = self.asked or bool(named) and sys._getframe(2).f_code.co_filename.startswith(_HERE)

    def unasked(self):
        self.keep()
        return {} if self.asked else dict(self.totals)


class _Statistics(dict):
    """The totals; they say when somebody looks at what ran eagerly."""

    def __init__(self, totals, watch):
        super().__init__(totals)
        self.watch = watch

    def __getitem__(self, key):
        self.watch.asked = self.watch.asked or key in KEYS
        return super().__getitem__(key)


def _told():
    return Counter(_stats()["fallback_reasons"])


_stats, _reset, _collect, _events = events.stats, events.reset, events.collect, events.events


@contextlib.contextmanager
def watching():
    """A block whose `_Watch` it yields."""
    watch = _Watch()

    def reset():
        watch.keep()
        _reset()
        watch.before = Counter()

    def collect(*kinds):
        watch.note(KINDS.intersection(kinds))
        return _collect(*kinds)

    def seen(kind=None):
        watch.note(kind in KINDS)
        return _events(kind)

    events.stats, events.reset = lambda: _Statistics(_stats(), watch), reset
    events.collect, events.events = collect, seen
    try:
        yield watch
    finally:
        events.stats, events.reset, events.collect, events.events = _stats, _reset, _collect, _events
