"""What is recorded of a finished capture: its guards, its symbols, and the lines that fixed some of them.

In:     an entry's guards, and the shape environment of its graph.
Out:    events `guard`, `dynamic` and `specialize`, which logs and `explain` show.
Holds:  nothing is worked out unless somebody listens. Guards that the backward pass brought are among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pliant.debug import events
from pliant.guards.kinds import Guard

if TYPE_CHECKING:
    from pliant.symbolic.shape_env import ShapeEnv


def note_guards(name: str, guards: Iterable[Guard]) -> None:
    """One event a guard, with the user's line that needs it."""
    if events.wants("guard"):
        from pliant.guards.explain import describe_guard

        for guard in guards:
            events.record("guard", name=name, text=describe_guard(guard), where=guard.origin or "")


def note_symbols(name: str, env: ShapeEnv) -> None:
    """One event a symbol, with where it comes from, and one for each that a guard fixed to a value."""
    if not events.wants("dynamic") and not events.wants("specialize"):
        return
    for symbol, sources in env.sources.items():
        hint = env.hint(symbol)
        why = "nothing may depend on its value" if hint is None else f"{hint} in this call"
        events.record("dynamic", name=name, symbol=str(symbol), source=" and ".join(map(str, sources)), why=why)
    for one in env.specializations:
        origins = [str(env.sources[s][0]) for s in one.symbol.free if env.sources.get(s)]
        text = f"{one.symbol} ({', '.join(origins)})" if origins else str(one.symbol)
        where = one.origin or "a line that is not known"
        events.record("specialize", name=name, symbol=text, value=one.value, where=where)
