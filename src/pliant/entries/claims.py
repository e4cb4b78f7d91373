"""Of processes that start with the same call, one compiles: the others wait for its entry.

In:     the store, what is called and with what.
Out:    `claimed(...)`: the claim, which is this process' until it is released; None where there is nothing to wait for, or
        waiting took too long. `is_here`: whether this process has it, which may be about to write the entry.
Holds:  a claim is an advisory lock on a file, which the system frees where its owner dies. It is a matter of time alone: no
        claim, or two, cost a compilation, and nothing depends on which.
"""

from __future__ import annotations

import hashlib
import os
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from pliant import background
from pliant.cache import trust
from pliant.cache.store import FORMAT, Store
from pliant.debug import events
from pliant.dispatch.roots import Root
from pliant.interruptions import pass_on, suppressed
from pliant.torch_adapter import is_distributed

try:
    import fcntl
except ImportError:  # another system
    fcntl = None  # type: ignore[assignment]

PATIENCE = 30.0  # seconds: an owner that was stopped, or that waits for this very process, holds it no longer
_FOLDER = "claims"
_FIRST, _LONGEST = 0.01, 0.1  # seconds between two looks
_WITHOUT_ENTRY = b"none"  # in the file: what was compiled is not kept

_FUNCTIONS = (types.FunctionType, types.MethodType, types.CodeType)
_lock = background.reentrant_lock()  # a claim may be dropped by the collector while this thread holds it
_own: set[str] = set()  # claims of this process, which does not wait for itself
_given_up: set[int] = set()  # the process, once it has waited in vain


class Claim:
    """`was_anothers`: another process had it, which may have kept an entry."""

    def __init__(self, path: str, file: int, was_anothers: bool) -> None:
        self._path, self._file, self.was_anothers = path, file, was_anothers
        self._process = os.getpid()

    def release(self, kept: bool = True) -> None:
        """Let the others go on: to look for the entry, or, if there is none, to compile."""
        with _lock:
            file, self._file = self._file, -1
        if file < 0 or self._process != os.getpid():
            return
        with suppressed(OSError):
            if not kept:
                os.write(file, _WITHOUT_ENTRY)
            os.unlink(self._path)
        with suppressed(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)
        _own.discard(self._path)

    def __del__(self) -> None:
        if _lock is not None:  # as it is once the interpreter has ended this module; with the process the claim ends, too
            self.release(kept=False)


def claimed(store: Store, root: Root, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Claim | None:
    """The claim, waited for if another process has it. Runs nothing of the program's."""
    if fcntl is None or os.getpid() in _given_up or is_distributed():  # processes of a group wait for each other as they run
        return None
    if not store.writable:
        return None
    path = _path(store, root, args, kwargs)
    with _lock:
        if path in _own:
            return None
        _own.add(path)
    claim = None
    try:
        if trust.may_write(store.root, Path(path).parent):
            trust.made(Path(path).parent)
            claim = _waited(path)
    except OSError as error:  # a folder that is read only, a file system without locks
        pass_on(error)
    finally:
        if claim is None:
            _own.discard(path)
    return claim


def is_here(store: Store, root: Root, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the claim is this process' already."""
    return bool(_own) and _path(store, root, args, kwargs) in _own


def _path(store: Store, root: Root, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return str(store.root / FORMAT / _FOLDER / _digest(root, args, kwargs))


def _waited(path: str) -> Claim | None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        waited = _is_locked(file) or _wait(file)
        if waited is None or os.pread(file, len(_WITHOUT_ENTRY), 0):
            os.close(file)
            return None
        return Claim(path, file, not isinstance(waited, bool))
    except BaseException:
        os.close(file)
        raise


def _is_locked(file: int) -> bool:
    """Whether the lock is this process' now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(file: int) -> float | None:
    """Seconds until the lock was this process'; None if that never came."""
    began, pause = time.monotonic(), _FIRST
    with events.stage("wait"):
        while not _is_locked(file):
            if time.monotonic() - began > PATIENCE:
                _given_up.add(os.getpid())
                return None
            time.sleep(pause)
            pause = min(_LONGEST, 1.5 * pause)
    return time.monotonic() - began


def _digest(root: Root, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Of what is called, by its name, and of the tensors, by what guards ask of them."""
    called: Any = root.called
    named = called if isinstance(called, (type, *_FUNCTIONS)) else type(called)
    first = next(called.parameters(), None) if isinstance(called, torch.nn.Module) else None
    try:
        given = tree_leaves((list(args), dict(kwargs)))
    except RecursionError:  # something contains itself
        given = []
    leaves = [_told(one) for one in (first, *given)]
    facts = (root.name, getattr(named, "__module__", ""), getattr(named, "__qualname__", ""), torch.is_grad_enabled(), leaves)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:24]


def _told(value: Any) -> object:
    if type(value) in (int, bool, str, float, type(None)):
        return value
    if type(value) in (torch.Tensor, torch.nn.Parameter) and not value.is_nested:
        return tuple(value.shape), str(value.dtype), str(value.device), value.requires_grad
    return type(value).__qualname__
