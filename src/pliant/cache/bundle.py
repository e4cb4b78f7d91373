"""Carry a cache to other machines, and say what it holds and how it served.

In:     the configured cache folder.
Out:    `export(path)` writes a bundle; `import_(path)` adds its entries; `report()` is a table.
Holds:  a bundle adds only files of the store's own names and never replaces an entry; checksums are compared when an
        entry is read. Whoever makes a bundle decides what code your processes load: import only what you trust.
"""

import io
import json
import os
import re
import tarfile
from collections import Counter
from pathlib import Path

from pliant import config
from pliant.cache.store import FORMAT, Store, usable_root
from pliant.debug import events
from pliant.errors import UserError

_NAME = re.compile(rf"{FORMAT}/([a-z_]+)/[0-9a-f]{{2}}/([0-9a-f]{{64}})/((?:data|key)[.\w]*)")


def _root() -> Path:
    return usable_root(config.get().cache.cache_dir)


def stores() -> list[Store]:
    """Those in the configured folder."""
    return _stores(_root())


def _stores(root: Path) -> list[Store]:
    folder = root / FORMAT
    names = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    return [Store(root, name, config.get().cache.cache_bytes) for name in names]


def export(path: str | os.PathLike[str]) -> int:
    """Write all entries into one compressed file; returns how many."""
    root = _root()
    count = 0
    with tarfile.open(path, "w:gz") as bundle:
        for store in _stores(root):
            for entry in store.entries():
                for file in sorted(entry.folder.iterdir()):
                    bundle.add(file, str(file.relative_to(root)), recursive=False)
                count += 1
    return count


def import_(path: str | os.PathLike[str]) -> int:
    """Add the entries of a bundle; returns how many were new. UserError if the file is no bundle."""
    root = _root()
    try:
        entries = _read(path)
    except (OSError, tarfile.TarError) as error:
        raise UserError(
            f"{os.fspath(path)} cannot be imported",
            kind="bundle",
            why=str(error),
            do="make it with pliant.cache.export",
        ) from error
    return sum(_add(root, namespace, digest, files) for (namespace, digest), files in entries.items())


def _read(path: str | os.PathLike[str]) -> dict[tuple[str, str], dict[str, bytes]]:
    """(namespace, digest) -> file name -> content. Nothing is extracted by path."""
    found: dict[tuple[str, str], dict[str, bytes]] = {}
    with tarfile.open(path, "r:gz") as bundle:
        for member in bundle:
            match = _NAME.fullmatch(member.name)
            content = bundle.extractfile(member) if match and member.isfile() else None
            if match is None or content is None:
                raise tarfile.ReadError(f"unexpected member {member.name!r}")
            found.setdefault((match[1], match[2]), {})[match[3]] = content.read()
    return found


def _add(root: Path, namespace: str, digest: str, files: dict[str, bytes]) -> bool:
    data = [name for name in files if name.startswith("data")]
    if len(data) != 1 or "key.json" not in files:
        raise UserError(f"entry {digest[:12]} of the bundle is incomplete", kind="bundle", do="export it again")
    description = json.load(io.BytesIO(files["key.json"]))
    store = Store(root, namespace, config.get().cache.cache_bytes)
    return store.adopt(digest, data[0], files[data[0]], description)


def report() -> str:
    """What is stored, by namespace, and the hits, misses and stores of this process."""
    lines = [f"cache {_root()}"]
    for store in _stores(_root()):
        sizes = [e.size for e in store.entries()]
        lines.append(f"  {store.namespace}: {len(sizes)} entries, {sum(sizes) / 2**20:.1f} MiB")
    counts = Counter(str(e.fields["what"]) for e in events.events("cache"))
    counts.update(f"entry {e.fields['what']}" for e in events.events("entry"))
    lines.append("  this process: " + (", ".join(f"{n} {what}" for what, n in counts.items()) or "nothing yet"))
    for event in events.events("cache"):
        if event.fields["what"] in ("miss", "corrupt"):
            lines.append(f"    {event.line} ({str(event.fields['digest'])[:12]})")
    lines += [f"    {event.line}" for event in events.events("entry") if str(event.fields["what"]).startswith("not")]
    return "\n".join(lines)
