"""Entries of dispatchers, kept on disk and found again.

In:     an entry and the call it was made for; later, in any process, a call that no entry serves.
Out:    `Keeper.prepare`: what writes the entry; `Keeper.find`: entries made again, most recently used first.
Holds:  what cannot be kept, or found, ends as an event with the reason; never as an error, never as a guess.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pliant import background, config
from pliant.cache.key import Key
from pliant.cache.lines import Lines
from pliant.cache.store import WRITING, open_store
from pliant.debug import events
from pliant.dispatch.dispatcher import Dispatcher
from pliant.dispatch.entry import Entry
from pliant.entries import form
from pliant.entries.content import NotKept
from pliant.entries.environment import Parts, circumstances_of, compiler_of, key_of
from pliant.entries.objects import NotFound
from pliant.entries.programs import ProgramReader
from pliant.errors import PliantError
from pliant.interruptions import pass_on
from pliant.runtime.load import reads_memory_later
from pliant.torch_adapter import Beginning

if TYPE_CHECKING:
    from pliant.entries.claims import Claim
    from pliant.entries.draft import Draft

_STORE, _SUFFIX = "entries", ".json"
_MOST = 16  # entries of one key that a process looks at
_PATIENCE, _ROUNDS = 1.0, 60  # seconds in which a backward is often asked for: one text then has both
_HEAD_START = 0.02  # seconds in which the call that made an entry returns: threads share the interpreter
_MOMENT = 0.5  # seconds


class Keeper:
    """Keeps entries of the compiler's own backend. It holds none: a dispatcher knows which it has seen. `compile_body`: how bodies
    of branches and loops are compiled, each with entries of its own."""

    def __init__(self, compile_body: Callable[..., Callable[..., Any]]) -> None:
        self.compile_body = compile_body

    # ---- keeping
    def prepare(
        self, dispatcher: Dispatcher, entry: Entry, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[[], None] | None:
        """What writes the entry, once it has served the call: its guards then hold for what is looked at here."""
        claim, dispatcher.claim = dispatcher.claim, None
        before = Beginning()
        try:
            with config.use(dispatcher.compilation.options()):
                return self._prepared(dispatcher, entry, args, kwargs, claim)
        finally:
            before.restore()

    def _prepared(
        self, dispatcher: Dispatcher, entry: Entry, args: Sequence[Any], kwargs: Mapping[str, Any], claim: Claim | None
    ) -> Callable[[], None] | None:
        if not _wanted():
            return None
        from pliant.entries.draft import Draft  # what finds its entries writes none

        try:
            with events.stage("keep"):
                circumstances = circumstances_of(dispatcher.compilation, dispatcher.root, args, kwargs)
                draft = Draft(dispatcher.root, entry, compiler_of(dispatcher.compilation))
        except Exception as error:  # a fault here must not change what the program does
            pass_on(error)
            _refused("not kept", dispatcher.name, error)
            return None
        return _Keeping(circumstances, draft, dispatcher.name, dispatcher.seen, claim).start

    # ---- finding
    def may_find(self) -> bool:
        """Whether there are any entries."""
        before = Beginning()
        try:
            return _wanted() and not open_store(_STORE).is_empty()
        finally:
            before.restore()

    def find(
        self, dispatcher: Dispatcher, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterator[Entry]:
        """Entries for the dispatcher that it does not have yet. The caller tries them on the call."""
        if not _wanted():
            return
        _forget_elsewhere(dispatcher.seen)
        yield from self._known(dispatcher, args, kwargs)
        if config.get().general.background:
            return  # calls wait for nobody
        from pliant.entries.claims import claimed, is_here  # by who may have to compile

        claim, call = None, (open_store(_STORE), dispatcher.root, args, kwargs)
        if is_here(*call):  # another object of this class was compiled: its entry, if that has begun, is written now
            background.finish(WRITING)
        else:
            dispatcher.claim = claim = claimed(*call)
            if claim is None or not claim.was_anothers:
                return
        new = list(self._known(dispatcher, args, kwargs, but=set(dispatcher.seen)))
        if new and claim is not None:
            claim.release()
        yield from new

    def _known(
        self, dispatcher: Dispatcher, args: Sequence[Any], kwargs: Mapping[str, Any], but: Container[str] = ()
    ) -> Iterator[Entry]:
        """Entries that are there now, but for some that were tried."""
        if open_store(_STORE).is_empty():
            return
        try:
            key = key_of(circumstances_of(dispatcher.compilation, dispatcher.root, args, kwargs))
        except Exception as error:  # what cannot be told, or a fault here: the old way is always open
            pass_on(error)
            _refused("not found", dispatcher.name, error)
            return
        seen = dispatcher.seen
        for digest, text in itertools.islice(open_store(_STORE).all(key, _SUFFIX), _MOST):
            if digest in but:
                continue
            if digest not in seen:
                seen[digest] = self._made(dispatcher, digest, text, args, kwargs)
            found = seen[digest]
            if not isinstance(found, form.Found) or found.entry in dispatcher.entries or not found.is_for(args, kwargs):
                continue
            if dispatcher.policy.failed.isdisjoint(found.entry.assumptions):
                yield found.entry

    def _made(
        self, dispatcher: Dispatcher, digest: str, text: bytes, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> form.Found | Elsewhere | None:
        programs = ProgramReader(self.compile_body)
        try:
            with events.stage("find"), reads_memory_later():
                found = form.made(Lines(text), programs, dispatcher, args, kwargs)
            for backwards in programs.backwards:
                backwards.lost = functools.partial(self._lost, weakref.ref(dispatcher), digest, weakref.ref(found.entry))
            return found
        except Exception as error:  # an entry of another making: the old way is always open
            pass_on(error)
            _refused("not found", dispatcher.name, error)
            return Elsewhere.VALUE if isinstance(error, NotFound) else None

    def _lost(self, dispatcher: weakref.ref[Dispatcher], digest: str, entry: weakref.ref[Entry]) -> None:
        """The process that made the entry never asked for gradients: this call's come operator by operator, and the next
        call compiles."""
        why = "its backward was not compiled when it was kept"
        found, lost = dispatcher(), entry()
        events.record("fallback", name=lost.name if lost is not None else "", why=why, reason="kept-entry")
        if found is not None and lost is not None:
            found.seen[digest] = None
            found.drop(lost)


class Elsewhere(enum.Enum):
    """What is seen of an entry that names what the program does not have, as yet: an earlier call may make it."""

    VALUE = enum.auto()


def _forget_elsewhere(seen: dict[str, form.Found | Elsewhere | None]) -> None:
    """Have such entries looked at again. Whoever asks would compile otherwise, so this is not asked often."""
    for digest in [digest for digest, found in seen.items() if found is Elsewhere.VALUE]:
        del seen[digest]


def _refused(what: str, name: str, error: Exception) -> None:
    """Note that an entry is not kept or not found; a fault of the compiler's own goes on where the user asked for it."""
    other = what == "not found" and isinstance(error, (NotFound, PliantError))
    kind = error.kind if isinstance(error, NotKept) else "other-object" if other else "crash"
    why = str(error) if kind != "crash" else f"{type(error).__name__}: {error}"
    events.record("entry", what=what, name=name, why=why, reason=kind)
    if kind == "crash" and config.get().general.strict:
        raise error


class _Keeping:
    """Writes an entry, and again whenever one more of its backwards is compiled: in place of the one before. On a thread: the
    call waits neither for names and tables nor for the disk. Names come first, while there is what they name: nothing of the
    program's is held while a backward is waited for."""

    def __init__(
        self, circumstances: Parts, draft: Draft, name: str, seen: dict[str, form.Found | Elsewhere | None], claim: Claim | None
    ) -> None:
        self.circumstances, self.draft, self.name, self.seen, self.claim = circumstances, draft, name, seen, claim
        self.changing = background.lock()
        self.grown = threading.Event()
        self.wanted = self.done = 0  # how often it was to be written, and which of these times is on disk
        self.refused = False
        self.last: Key | None = None
        self.returning = 0.0  # when the call will have returned
        self.options = config.get()

    def start(self) -> None:
        for backwards, _ in self.draft.programs.backwards:
            backwards.when_compiled = self._more
        self.returning = time.monotonic() + _HEAD_START
        self._write()

    def _more(self) -> None:
        try:
            with self.changing:
                self.draft.programs.fill()
        except NotKept as refused:
            _refused("not kept", self.name, refused)
            return
        self.grown.set()
        self._write()

    def _write(self) -> None:
        self.wanted += 1

        def write() -> None:
            with config.use(self.options):
                kept = False
                if self._named():
                    self._await_backwards()
                    kept = self._done(self._put)
                if self.claim is not None:
                    self.claim.release(kept)

        background.start(write, WRITING)

    def _done(self, work: Callable[[], object]) -> bool:
        """Whether the work was done. What refuses it is told, and for good unless it is the disk."""
        try:
            with _writing:
                if not self.refused:
                    work()
                    return True
        except OSError as error:
            pass_on(error)
            _refused("not kept", self.name, NotKept("no-space", str(error)))
        except Exception as error:
            pass_on(error)
            self.refused = True
            _refused("not kept", self.name, error)
        return False

    def _named(self) -> bool:
        """Whether all has its name. The call returns first: wherever it asked for its turn it would wait for this thread. What a
        program lets go of at once is held for a moment."""
        held: object = self.draft.named_objects()
        background.wait(threading.Event(), max(0.0, self.returning - time.monotonic()))
        if _writing.acquire(timeout=_MOMENT):
            _writing.release()
        else:
            held = None
        done = self._done(self._name)
        del held
        return done

    def _name(self) -> None:
        assert self.draft.data

    def _await_backwards(self) -> None:
        for _ in range(_ROUNDS):
            waited = self.draft.programs.is_whole() or not background.wait(self.grown, _PATIENCE)
            if waited and not self.draft.programs.grows():
                return
            self.grown.clear()

    def _put(self) -> None:
        if self.done == self.wanted:
            return
        with self.changing:
            count = self.wanted
            text = self.draft.text()
        self.done = count
        made = _key_with(key_of(self.circumstances), text)
        self.seen[made.digest] = None
        open_store(_STORE).put(made, text, _SUFFIX)
        if self.last not in (None, made):
            open_store(_STORE).remove(self.last)
        self.last = made
        events.record("entry", what="kept", name=self.name, why=f"{len(text)} bytes", reason="")


def _key_with(key: Key, text: bytes) -> Key:
    """The key of this entry among those of the key."""
    return Key(key.parts, hashlib.sha256(text).hexdigest())


_writing = background.lock()


def _wanted() -> bool:
    options = config.get().cache
    return options.cache and options.keep_entries
