"""Whether a folder's content can only be ours: code is loaded from it, and files in it are replaced.

In:     paths.
Out:    `why_not(folder)`: why others could have put something there, or None; `within(root, path)`: the same of all that
        lies between a folder that can be trusted and a file in it; `made(folder)`: a folder that only we can enter.
Holds:  the superuser is trusted. No link of another user is followed.
"""

import os
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path

_STRANGER = 65534  # an owner whom this user namespace does not know, of folders above ours


def made(folder: Path) -> Path:
    """The folder, made if need be with all its parents, private to this user."""
    if not folder.is_dir():
        made(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def why_not(folder: Path) -> str | None:
    """Looks at the folder, and at every folder above it in which a name on the way to it stands, a link's too."""
    if (trouble := _of(folder.stat())) is not None:
        return trouble
    for above, name in _way_to(folder):
        facts = above.stat()
        if (trouble := _of_owner(facts, (_STRANGER,))) is not None:  # who may rename whatever is in it
            return f"{above} lies above it, and {trouble}"
        if facts.st_mode & stat.S_ISVTX:  # everybody may add to it, but replaces only what is theirs
            if (above / name).lstat().st_uid not in (_user(), 0, _STRANGER):
                return f"in {above} it is named by another user"
        elif (trouble := _of(facts, (_STRANGER,))) is not None:
            return f"{above} lies above it, and {trouble}"
    return None


def _way_to(folder: Path) -> Iterator[tuple[Path, str]]:
    """The folders that are gone through to this one, as no link names them, and the name that is followed in each."""
    here, names = Path("/"), deque(Path(os.path.abspath(folder)).parts[1:])
    while names:
        name = names.popleft()
        if name == "..":  # of a link
            here = here.parent
            continue
        yield here, name
        if not (here / name).is_symlink():
            here = here / name
            continue
        target = Path(os.readlink(here / name))
        names.extendleft(reversed(target.parts[target.is_absolute() :]))
        here = Path("/") if target.is_absolute() else here


def within(root: Path, path: Path, *files: str) -> str | None:
    """Why something between the folder `root`, itself trusted, and `path` in it, or one of the files in that, may be others'.
    FileNotFoundError if there is nothing."""
    reachable, here = _is_open(os.stat(root)), os.fspath(root)
    for name in path.relative_to(root).parts:
        here = f"{here}/{name}"
        facts = os.lstat(here)
        if (trouble := _of_one(here, facts, reachable)) is not None:
            return trouble
        reachable = reachable and _is_open(facts)
    troubles = (_of_one(one, os.lstat(one), reachable) for one in (f"{here}/{name}" for name in files))
    return next(filter(None, troubles), None)


def _of_one(path: str, facts: os.stat_result, reachable: bool) -> str | None:
    if stat.S_ISLNK(facts.st_mode):
        return f"{path} is a link"
    trouble = _of(facts) if reachable else _of_owner(facts)
    return None if trouble is None else f"{path}: {trouble}"


def may_write(root: Path, folder: Path) -> bool:
    """Whether what is written into `folder`, which is made if need be, is read back by us alone."""
    while folder != root:
        try:
            return within(root, folder) is None
        except FileNotFoundError:
            folder = folder.parent
    return True


def _is_open(facts: os.stat_result) -> bool:
    """Whether others can get into the folder."""
    return bool(facts.st_mode & (stat.S_IXGRP | stat.S_IXOTH))


def _of(facts: os.stat_result, others: tuple[int, ...] = ()) -> str | None:
    if (trouble := _of_owner(facts, others)) is not None:
        return trouble
    shared = stat.S_IWOTH if facts.st_gid == facts.st_uid else stat.S_IWOTH | stat.S_IWGRP  # a group of one's own
    return "other users can write to it" if facts.st_mode & shared else None


def _of_owner(facts: os.stat_result, others: tuple[int, ...] = ()) -> str | None:
    return None if facts.st_uid in (_user(), 0, *others) else "it belongs to another user"


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0
