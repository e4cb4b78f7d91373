"""A content-addressed store of files that many processes share.

In:     a `Key` and bytes, or a function that writes a file.
Out:    the path or the bytes of the entry.
Holds:  an entry appears complete or not at all (it is a folder, renamed into place); what is read back is what was
        written (checksum), else the entry is dropped with a warning; nothing is taken that another user could have
        written (`trust.py`); the total size stays near `max_bytes` (least recently used entries go first).

Layout: `<root>/v1/<namespace>/<2 digits>/<digest>/{data<suffix>, key.json}`. Where the folder cannot be used
(owned by somebody else, say), a private temporary folder serves this process, with one warning. From a folder that can
only be read entries are taken; new ones go to the private one, as they do when the disk is full.
"""

import atexit
import errno
import functools
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pliant import background, config
from pliant.cache import trust
from pliant.cache.key import Key
from pliant.debug import events
from pliant.errors import CacheWarning
from pliant.interruptions import pass_on, suppressed
from pliant.records import dataclass

FORMAT = "v1"
WRITING = "pliant-keeping"  # the threads that write what the program does not wait for
FRESH_SECONDS = 60.0  # an entry used this recently is neither touched again nor evicted
ABANDONED_SECONDS = 3600.0  # nothing takes so long to write
KEEP = 0.8  # eviction goes on until this part of the bound is left


@dataclass(frozen=True, slots=True)
class Entry:
    """What is on disk for one key."""

    folder: Path
    size: int
    used: float


class Store:
    """Entries of one namespace below one root. Cheap to make; holds no open files; safe to use from any thread."""

    def __init__(self, root: Path, namespace: str, max_bytes: int) -> None:
        self.root = root
        self.home = root / FORMAT / namespace
        self.namespace = namespace
        self.max_bytes = max_bytes
        self._lock = background.lock()
        self._size: int | None = None  # bytes in the namespace as far as this process knows

    @property
    def writable(self) -> bool:
        """Asked where something is to be written: what finds all that it looks for tries no writing."""
        return _is_writable(self.root)

    # ------------------------------------------------------------------------------------------- reading

    def path(self, key: Key, suffix: str = "") -> Path | None:
        """The entry's file, checked, or None. It may be evicted by another process once a minute has passed."""
        found = self._found(key, suffix)
        return None if found is None else found[0]

    def get(self, key: Key, suffix: str = "") -> bytes | None:
        """The entry's content, or None."""
        found = self._found(key, suffix)
        return None if found is None else found[1]

    def at(self, digest: str, suffix: str = "") -> Path | None:
        """The file of the entry of this digest, checked, or None."""
        found = self._checked(self.home / digest[:2] / digest, suffix)
        return None if found is None else found[0]

    def all(self, key: Key, suffix: str = "") -> Iterator[tuple[str, bytes]]:
        """Digest and content of each entry of a key without a maker, most recently used first."""
        for folder in self._folders(key):
            found = self._checked(folder, suffix)
            if found is not None:
                yield folder.name, found[1]

    def _found(self, key: Key, suffix: str) -> tuple[Path, bytes] | None:
        """The entry's file, checked, and what was read of it."""
        found = next((one for f in self._folders(key) if (one := self._checked(f, suffix)) is not None), None)
        if found is None and self.root != private_root(os.getpid()) and not self._may_write(key):
            return self._spare()._found(key, suffix)
        return found

    def _folders(self, key: Key) -> list[Path]:
        """Where the entry may be: of a key without a maker, most recently used first."""
        folder = self._folder(key)
        if key.maker is not None:
            return [folder]
        found: list[tuple[float, Path]] = []
        # Not `Path.glob`, which ignores a time limit's exception if it is an OSError.
        with suppressed(OSError), os.scandir(folder.parent) as beside:  # evicted, or the disk is not to be reached
            for one in beside:
                if one.name.startswith(key.content):
                    with suppressed(OSError):
                        found.append((os.stat(f"{one.path}/key.json").st_mtime, Path(one.path)))
        return [one for _, one in sorted(found, reverse=True)] or [folder]

    def _checked(self, folder: Path, suffix: str) -> tuple[Path, bytes] | None:
        data = folder / f"data{suffix}"
        try:
            if (trouble := trust.within(self.root, folder, "key.json", data.name)) is not None:
                self._distrusted(folder, trouble)
                return None
            description = json.loads((folder / "key.json").read_bytes())
            content = data.read_bytes()
        except FileNotFoundError:
            events.record("cache", what="miss", name=self.namespace, why="no such entry", digest=folder.name)
            return None
        except OSError as error:
            pass_on(error)
            self._unreadable(folder, error)
            return None
        except ValueError as error:
            self._drop_corrupt(folder, repr(error))
            return None
        if not isinstance(description, dict) or hashlib.sha256(content).hexdigest() != description.get("sha256"):
            self._drop_corrupt(folder, "the checksum differs")
            return None
        self._touch(folder / "key.json")
        events.record("cache", what="hit", name=self.namespace, why="", digest=folder.name)
        return data, content

    def _touch(self, file: Path) -> None:
        with suppressed(OSError):
            if not _is_fresh(os.stat(file).st_mtime):
                os.utime(file)

    def _distrusted(self, folder: Path, why: str) -> None:
        events.record("cache", what="distrusted", name=self.namespace, why=why, digest=folder.name)
        text = f"the cache entry {folder} is ignored, since others may have written it: {why}"
        events.warn_once(f"distrusted:{folder}", text, CacheWarning)

    def _unreadable(self, folder: Path, error: OSError) -> None:
        """What another host has just removed is no more than a miss; what cannot be read would be in the way of another."""
        events.record("cache", what="miss", name=self.namespace, why=str(error), digest=folder.name)
        if error.errno != errno.ESTALE:
            self._tell_of_disk("read", error)
            self._remove(folder)

    def _drop_corrupt(self, folder: Path, why: str) -> None:
        events.record("cache", what="corrupt", name=self.namespace, why=why, digest=folder.name)
        text = f"the cache entry {folder} is corrupt and is ignored: {why}"
        events.warn_once(f"corrupt:{folder}", text, CacheWarning)
        self._remove(folder)

    # ------------------------------------------------------------------------------------------- writing

    def put(self, key: Key, data: bytes, suffix: str = "") -> Path:
        """Store bytes; returns the path they can be read from. If another process was faster, its entry stays."""
        return self.build(key, suffix, lambda path: _write(path, data))

    def build(self, key: Key, suffix: str, make: Callable[[Path], None]) -> Path:
        """Store the file that `make(path)` writes. Errors of `make` pass through and leave nothing behind."""
        private = self.root == private_root(os.getpid())
        if private or self._may_write(key):
            try:
                return self._build(key, suffix, make)
            except OSError as error:
                pass_on(error)
                if private:
                    raise
                self._tell_of_disk("written", error)
        return self._spare().build(key, suffix, make)

    def _may_write(self, key: Key) -> bool:
        """Not where something lies that others could have written: what is corrupt is dropped, that is not."""
        try:
            return self.writable and trust.may_write(self.root, self._folder(key))
        except OSError as error:
            pass_on(error)
            self._tell_of_disk("read", error)
            return False

    def _tell_of_disk(self, what: str, error: OSError) -> None:
        text = f"the cache folder {self.root} cannot be {what} ({error.strerror or error}); a temporary one serves for this"
        events.warn_once(f"cache-disk:{self.root}", text, CacheWarning)

    def _spare(self) -> "Store":
        return _store(private_root(os.getpid()), self.namespace, self.max_bytes)

    def _build(self, key: Key, suffix: str, make: Callable[[Path], None]) -> Path:
        folder = self._folder(key)
        parent = trust.made(folder.parent)
        scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
        try:
            made = scratch / f"data{suffix}"
            make(made)
            content = made.read_bytes()
            description = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "parts": key.summary()}
            _write(scratch / "key.json", json.dumps(description, indent=1).encode())
            self._move_into_place(scratch, folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        events.record("cache", what="store", name=self.namespace, why=f"{len(content)} bytes", digest=folder.name)
        self._grow(len(content))
        return folder / f"data{suffix}"

    def get_or_build(self, key: Key, suffix: str, make: Callable[[Path], None]) -> Path:
        """The entry's file, built by `make(path)` if it is not there. Of two processes that both build, one wins."""
        return self.path(key, suffix) or self.build(key, suffix, make)

    def adopt(self, digest: str, file: str, content: bytes, description: dict[str, Any]) -> bool:
        """Add an entry made elsewhere; False if there is one. Its checksum is looked at when it is read."""
        folder = self.home / digest[:2] / digest
        if folder.exists():
            return False
        if not trust.may_write(self.root, folder):
            raise PermissionError(f"others can write to {folder.parent}")
        scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=trust.made(folder.parent)))
        try:
            _write(scratch / file, content)
            _write(scratch / "key.json", json.dumps(description, indent=1).encode())
            self._move_into_place(scratch, folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self._grow(len(content))
        return True

    def remove(self, key: Key) -> None:
        """Take an entry away, if it is there."""
        if self._may_write(key) and self._folder(key).exists():
            self._remove(self._folder(key))

    def _move_into_place(self, scratch: Path, folder: Path) -> None:
        try:
            scratch.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
            if all((folder / file.name).exists() for file in scratch.iterdir()):
                return  # another process stored the same key first: same key, same meaning
            self._remove(folder)  # somebody took a part of it away
            scratch.rename(folder)

    def _folder(self, key: Key) -> Path:
        digest = key.digest
        return self.home / digest[:2] / digest

    def _remove(self, folder: Path) -> None:
        """Take an entry away in one step, then delete it."""
        away = folder.with_name(f".old-{folder.name[:16]}-{os.getpid()}-{time.monotonic_ns()}")
        with suppressed(OSError):
            folder.rename(away)
            shutil.rmtree(away, ignore_errors=True)

    # ------------------------------------------------------------------------------------------- size

    def entries(self) -> Iterator[Entry]:
        """All entries. Those that vanish meanwhile are left out."""
        for folder in self.home.glob("[0-9a-f][0-9a-f]/[0-9a-f]*"):
            try:
                size = sum(f.stat().st_size for f in folder.iterdir())
                yield Entry(folder, size, (folder / "key.json").stat().st_mtime)
            except OSError as error:
                pass_on(error)
                continue

    def is_empty(self) -> bool:
        """Whether nothing was ever stored."""
        with suppressed(OSError), os.scandir(self.home) as found:
            return not any(found)
        return True

    def describe(self) -> list[dict[str, Any]]:
        """What is stored: the parts, size and checksum of each entry."""
        found = []
        for entry in self.entries():
            with suppressed(OSError, ValueError):
                found.append(json.loads((entry.folder / "key.json").read_bytes()))
        return found

    def clear(self) -> None:
        """Remove every entry."""
        for entry in self.entries():
            self._remove(entry.folder)
        self._size = 0

    def _grow(self, amount: int) -> None:
        with self._lock:
            if self._size is None:
                self._size = sum(e.size for e in self.entries())
            else:
                self._size += amount
            if self._size > self.max_bytes:
                self._size = self._evict()

    def _evict(self) -> int:
        """Remove least recently used entries, and what writers left that were killed; returns the bytes that are left."""
        for scratch in self.home.glob("[0-9a-f][0-9a-f]/.[no][el][wd]-*"):
            with suppressed(OSError):  # its writer has just ended
                if time.time() - scratch.stat().st_mtime > ABANDONED_SECONDS:
                    shutil.rmtree(scratch, ignore_errors=True)
        entries = sorted(self.entries(), key=lambda e: e.used)
        total = sum(e.size for e in entries)
        for entry in entries:
            if total <= self.max_bytes * KEEP:
                break
            if _is_fresh(entry.used):
                continue
            self._remove(entry.folder)
            events.record("cache", what="evict", name=self.namespace, why="size bound", digest=entry.folder.name)
            total -= entry.size
        return total


def _is_fresh(used: float) -> bool:
    """Whether it was used lately; what is dated ahead was used before the clock went back."""
    return abs(time.time() - used) < FRESH_SECONDS


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


# ------------------------------------------------------------------------------------------------- where it is


def open_store(namespace: str) -> Store:
    """The store of this name in the configured folder, or in a private temporary one where that cannot be used."""
    options = config.get().cache
    root = usable_root(options.cache_dir) if options.cache else private_root(os.getpid())
    return _store(root, namespace, options.cache_bytes)


@functools.cache
def _store(root: Path, namespace: str, max_bytes: int) -> Store:
    return Store(root, namespace, max_bytes)


@functools.lru_cache(maxsize=16)
def _is_writable(root: Path) -> bool:
    try:
        with tempfile.NamedTemporaryFile(dir=root, prefix=".probe-"):
            return True
    except OSError as error:
        pass_on(error)
        return False


@functools.lru_cache(maxsize=16)
def usable_root(configured: str) -> Path:
    """The configured folder, made if need be; a private temporary one, and a warning, if it is unsafe or unwritable."""
    root = Path(configured).expanduser()
    trouble = _trouble(root)
    if trouble is None:
        return root
    events.warn_once(
        f"cache:{root}",
        f"the cache folder {root} is not used: {trouble}. A temporary folder serves this process; set PLIANT_CACHE_DIR "
        "to a folder that only you can write to",
        CacheWarning,
    )
    return private_root(os.getpid())


def _trouble(root: Path) -> str | None:
    """Why code must not be kept there, or None."""
    try:
        trust.made(root)
        if (trouble := trust.why_not(root)) is not None:
            return trouble
        return None if (root / FORMAT).is_dir() or _is_writable(root) else "it cannot be written, and holds nothing"
    except OSError as error:
        pass_on(error)
        return f"it cannot be written ({error.strerror or error})"


@functools.lru_cache(maxsize=4)
def private_root(process: int) -> Path:
    """A folder of this process alone (a forked child makes its own), removed when it ends."""
    root = Path(tempfile.mkdtemp(prefix="pliant-"))
    atexit.register(_remove_own, root, process)
    return root


def own_folder(purpose: str) -> Path:
    """A folder for what stays behind for the user to look at: in the cache, or a temporary one of this process."""
    try:
        root = usable_root(config.get().cache.cache_dir)
        if root != private_root(os.getpid()) and _is_writable(root):
            folder = trust.made(root / purpose)
            if trust.within(root, folder) is None:
                return folder
    except OSError as error:
        pass_on(error)
    return _kept_folder(purpose, os.getpid())


@functools.lru_cache(maxsize=4)
def _kept_folder(purpose: str, process: int) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"pliant-{purpose}-"))


def _remove_own(root: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(root, ignore_errors=True)
