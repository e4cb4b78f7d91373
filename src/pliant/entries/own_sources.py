"""What Pliant itself is: entries that another state of it made are not for this one.

In:     the files of the package.
Out:    `source_digest()`: a digest of their content, the same wherever they are installed.
Holds:  of a file whose inode, size and times of content and of change are as they were the content is not read again. The
        time of change can be set by no program, so these facts stay the same through a write only if the clock shows the
        same time again: within one tick of it, which is why what changed lately is read.
"""

from __future__ import annotations

import functools
import hashlib
import marshal
import os
import time
from collections.abc import Sequence

from pliant.cache.key import make_key
from pliant.cache.store import open_store

_LATELY = 5 * 10**9  # nanoseconds; file systems tell times to 2 s at worst
_STORE = "sources"
_Facts = tuple[str, int, int, int, int, int]  # of a file: its name below the root, times of change and of content, size, place


@functools.cache
def source_digest() -> str:
    """Changes when the content or the place in the package of any of Pliant's files does."""
    return digest_below(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def digest_below(root: str) -> str:
    """Of all Python files below the folder."""
    found = sorted(_files(root))
    key = make_key(maker=None, files=_digest_of_facts(found))
    changed, now = max((at for _, at, *_ in found), default=0), time.time_ns()
    settled = changed < now - _LATELY
    known = open_store(_STORE).get(key) if settled else None
    if known is not None:
        return known.decode()
    digest = _read(root, [facts[0] for facts in found])
    if settled:
        open_store(_STORE).put(key, digest.encode())
    return digest


def _digest_of_facts(facts: list[_Facts]) -> str:
    return hashlib.sha256(marshal.dumps([*facts], 2)).hexdigest()  # the version that does not tell how often an object is used


def _files(root: str) -> list[_Facts]:
    """Of each file. Bytecode, of which there may be as much again, is not looked at."""
    found: list[_Facts] = []
    folders = [""]
    for prefix in folders:
        folder = os.open(os.path.join(root, prefix), os.O_RDONLY)  # from there, a look at a file takes a third less
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = entry.name
                    if name.endswith(".py"):
                        s = os.stat(name, dir_fd=folder)
                        found.append((prefix + name, s.st_ctime_ns, s.st_mtime_ns, s.st_size, s.st_ino, s.st_dev))
                    elif name != "__pycache__" and entry.is_dir():
                        folders.append(f"{prefix}{name}/")
        finally:
            os.close(folder)
    return found


def _read(root: str, names: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        with open(os.path.join(root, name), "rb") as file:
            content = file.read()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
