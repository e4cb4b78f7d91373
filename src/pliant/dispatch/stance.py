"""How compiled functions behave for a while, process-wide: compile as usual, not at all, or not again.

In:     `set_stance("force_eager")` and the like.
Out:    `current()`, asked where an entry is missed.
Holds:  while eager is forced no entry runs: dispatchers that are alive lose their fast path until the stance ends.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Literal, get_args

from pliant import background, config, peer
from pliant.debug import events
from pliant.errors import ConfigError

if TYPE_CHECKING:
    from pliant.dispatch.dispatcher import Dispatcher

Stance = Literal[
    "default",
    "force_eager",
    "eager_on_recompile",
    "fail_on_recompile",
    "eager_then_compile",
    "aot_eager_then_compile",
]
# The first call of a function runs eagerly and tells the sizes that the second one is compared with.
EAGER_FIRST: frozenset[Stance] = frozenset(("eager_then_compile", "aot_eager_then_compile"))


_lock = background.lock()
_current: Stance = "default"
_dispatchers: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


def current() -> Stance:
    """The stance; while nothing else was said, the one that `torch.compiler.set_stance` set."""
    return _current if _current != "default" else _of_the_peer()


def own() -> Stance:
    """The stance, whatever was said to PyTorch's own compiler."""
    return _current


def _of_the_peer() -> Stance:
    state = peer.stance()
    if state is None:
        return "default"
    if state.backend is not None or state.skip_guard_eval_unsafe:
        events.warn_once(
            "stance-of-torch",
            "torch.compiler.set_stance: `force_backend` and `skip_guard_eval_unsafe` do nothing to functions that Pliant compiled",
        )
    found: Stance = state.stance if state.stance in get_args(Stance) else "default"
    return found


def register(dispatcher: Dispatcher) -> None:
    with _lock:
        _dispatchers.add(dispatcher)


def everyone() -> list[Dispatcher]:
    """All dispatchers that are alive."""
    with _lock:
        return list(_dispatchers)


def _put(stance: Stance) -> None:
    global _current
    _current = stance
    for dispatcher in everyone():
        dispatcher.refresh()


config.follow("stance", _put)


class set_stance(contextlib.ContextDecorator):
    """Set the stance: at once as a call, until the end of the block as a context manager, for each call as a
    decorator."""

    def __init__(self, stance: Stance = "default") -> None:
        if stance not in get_args(Stance):
            raise ConfigError(
                f"unknown stance {stance!r}",
                kind="unknown-stance",
                why="the stances are " + ", ".join(get_args(Stance)),
                do="pass one of these",
            )
        self.stance = stance
        self._before: list[Stance] = [_current]
        _put(stance)

    def __enter__(self) -> None:
        _put(self.stance)

    def __exit__(self, *exc: object) -> None:
        _put(self._before[-1])

    def __call__(self, function):  # type: ignore[no-untyped-def]  # the decorated function's own type comes back
        _put(self._before[-1])  # a decorator sets nothing until the function runs
        return super().__call__(function)
