"""Entries that a later call has kept on disk: those whose graphs were compiled behind calls.

In:     an entry that is to be kept, and its dispatcher, held weakly: it holds the function.
Out:    `keeping_call(...)`: in place of the entry's function for the next call that the entry serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pliant.guards.generated import EntryFunction
from pliant.guards.steps import MISS
from pliant.torch_adapter import shielded

if TYPE_CHECKING:
    from pliant.dispatch.dispatcher import Dispatcher
    from pliant.dispatch.entry import Entry


def keeping_call(dispatcher: Callable[[], Dispatcher | None], entry: Entry) -> EntryFunction:
    """A call that looks at what the entry names before it runs, and has it written once it has served."""

    def call(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        found, wanted, entry.unkept = dispatcher(), entry.unkept, False
        keeper = found.compilation.keeper if found is not None else None
        if found is None or keeper is None or not wanted:
            return entry.fast(args, kwargs)
        found.refresh()
        keep = shielded(keeper.prepare)(found, entry, args, kwargs)
        if keep is None:
            entry.form = None
            return entry.fast(args, kwargs)
        result = entry.first_run(keep, args, kwargs)
        if result is MISS:
            found.keep_later(entry)
        return result

    return call
