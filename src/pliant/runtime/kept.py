"""What building leaves on disk besides what is built: refused texts, and nothing where there is no room."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from pliant.cache.store import own_folder
from pliant.errors import NoKernels
from pliant.interruptions import pass_on


def keep(texts: Sequence[str], suffix: str) -> str:
    """Write refused texts into a folder of their own; what one process keeps lies in one folder. Its path."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="refused-", dir=own_folder("kept")))
        for k, text in enumerate(texts):
            (folder / f"part{k}{suffix}").write_text(text, encoding="utf-8")
        return str(folder)
    except OSError as error:
        pass_on(error)
        return f"the text cannot be kept ({error.strerror or error})"


def no_space(why: str) -> NoKernels:
    """The error for built code that finds no room."""
    return NoKernels(
        f"built code cannot be written: {why}",
        kind="no-space",
        why="neither the cache folder nor the temporary one takes it",
        do="make room, or set PLIANT_CACHE_DIR and TMPDIR to folders that can be written",
    )
