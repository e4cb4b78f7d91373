"""Entries of dispatchers, kept on disk and found again.

In:     an entry and the call it was made for; later, in any process, a call that no entry serves.
Out:    `Keeper.prepare`: what writes the entry; `Keeper.find`: entries made again, most recently used first.
Holds:  what cannot be kept, or found, ends as an event with the reason; never as an error, never as a guess.
"""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pliant import background, config
from pliant.cache.key import Key
from pliant.cache.store import open_store
from pliant.capture.dispatch import Dispatcher
from pliant.capture.entry import Entry
from pliant.capture.roots import CallableRoot
from pliant.debug import events
from pliant.entries import form
from pliant.entries.content import NotKept
from pliant.entries.environment import key_of
from pliant.entries.objects import NotFound
from pliant.errors import PliantError
from pliant.interruptions import pass_on

_STORE, _SUFFIX = "entries", ".json"
_MOST = 16  # entries of one key that a process looks at


class Keeper:
    """Keeps entries of the compiler's own backend."""

    def __init__(self) -> None:
        self._seen: weakref.WeakKeyDictionary[Dispatcher, dict[str, Entry | None]] = weakref.WeakKeyDictionary()

    # ---- keeping
    def prepare(
        self, dispatcher: Dispatcher, entry: Entry, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[[], None] | None:
        """What writes the entry, once it has served the call: its guards then hold for what is written down here."""
        if not _wanted() or not isinstance(dispatcher.root, CallableRoot):
            return None
        try:
            with events.stage("keep"):
                key = key_of(dispatcher.compilation, dispatcher.root.fn, args, kwargs)
                text = json.dumps(form.written(dispatcher.root.fn, entry), separators=(",", ":")).encode()
        except NotKept as refused:
            events.record("entry", what="not kept", name=dispatcher.name, why=str(refused), reason=refused.kind)
            return None
        except Exception as error:  # a fault here must not change what the program does
            pass_on(error)
            why = f"{type(error).__name__}: {error}"
            events.record("entry", what="not kept", name=dispatcher.name, why=why, reason="crash")
            if config.get().general.strict:
                raise
            return None
        made = Key(key.parts, hashlib.sha256(text).hexdigest())
        self._seen.setdefault(dispatcher, {})[made.digest] = None
        return lambda: _write_beside(made, text, dispatcher.name)

    # ---- finding
    def find(
        self, dispatcher: Dispatcher, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterator[Entry]:
        """Entries for the dispatcher that it does not have yet. The caller tries them on the call."""
        if not _wanted() or not isinstance(dispatcher.root, CallableRoot):
            return
        try:
            key = key_of(dispatcher.compilation, dispatcher.root.fn, args, kwargs)
        except NotKept as refused:
            events.record("entry", what="not found", name=dispatcher.name, why=str(refused), reason=refused.kind)
            return
        seen = self._seen.setdefault(dispatcher, {})
        for digest, text in open_store(_STORE).all(key, _SUFFIX):
            if digest not in seen:
                seen[digest] = self._made(dispatcher, text, args, kwargs)
            found = seen[digest]
            if found is not None and found not in dispatcher.entries:
                yield found
            if len(seen) >= _MOST:
                return

    def _made(
        self, dispatcher: Dispatcher, text: bytes, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Entry | None:
        assert isinstance(dispatcher.root, CallableRoot)
        try:
            with events.stage("find"):
                return form.made(json.loads(text), dispatcher, dispatcher.root.fn, args, kwargs)
        except (NotFound, PliantError) as refused:
            pass_on(refused)
            events.record("entry", what="not found", name=dispatcher.name, why=str(refused), reason="other-object")
        except Exception as error:  # an entry of another making: the old way is always open
            pass_on(error)
            why = f"{type(error).__name__}: {error}"
            events.record("entry", what="not found", name=dispatcher.name, why=why, reason="crash")
            if config.get().general.strict:
                raise
        return None


def _wanted() -> bool:
    options = config.get().cache
    return options.cache and options.keep_entries


def _write_beside(key: Key, text: bytes, name: str) -> None:
    """On a thread: the call does not wait for the disk."""
    options = config.get()

    def write() -> None:
        with config.use(options):
            try:
                open_store(_STORE).put(key, text, _SUFFIX)
                events.record("entry", what="kept", name=name, why=f"{len(text)} bytes", reason="")
            except OSError as error:
                pass_on(error)
                events.record("entry", what="not kept", name=name, why=str(error), reason="no-space")

    background.start(write, "pliant-keeping")
