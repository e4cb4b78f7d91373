"""Whether a folder's content can only be ours: code is loaded from it, and files in it are replaced.

In:     paths.
Out:    `why_not(folder)`: why others could have put something there, or None; `within(root, path)`: the same of all that
        lies between a folder that can be trusted and a file in it; `made(folder)`: a folder that only we can enter.
Holds:  the superuser is trusted. No link of another user is followed.
"""

import os
import stat
from pathlib import Path

_STRANGER = 65534  # an owner whom this user namespace does not know, of folders above ours


def made(folder: Path) -> Path:
    """The folder, made if need be with all its parents, private to this user."""
    if not folder.is_dir():
        made(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def why_not(folder: Path) -> str | None:
    """Looks at the folder and at all folders above it, as they are named and as links lead to them."""
    named, real = Path(os.path.abspath(folder)), Path(os.path.realpath(folder))
    trouble = _of(real.stat())
    if trouble is not None:
        return trouble
    for above in dict.fromkeys((*named.parents, *real.parents)):
        facts = above.stat()
        if facts.st_mode & stat.S_ISVTX:  # everybody may add to it, but replaces only what is theirs
            facts = _below(above, named if above in named.parents else real).lstat()
        elif (trouble := _of(facts, (_STRANGER,))) is not None:
            return f"{above} lies above it, and {trouble}"
        if facts.st_uid not in (_user(), 0, _STRANGER):
            return f"in {above} it is named by another user"
    return None


def _below(above: Path, path: Path) -> Path:
    return above / path.relative_to(above).parts[0]


def within(root: Path, path: Path) -> str | None:
    """Why something between the folder `root`, itself trusted, and `path` in it may be others'."""
    reachable = _is_open(root.stat())
    for name in path.relative_to(root).parts:
        root = root / name
        facts = root.lstat()
        if stat.S_ISLNK(facts.st_mode):
            return f"{root} is a link"
        trouble = _of(facts) if reachable else _of_owner(facts)
        if trouble is not None:
            return f"{root}: {trouble}"
        reachable = reachable and _is_open(facts)
    return None


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
