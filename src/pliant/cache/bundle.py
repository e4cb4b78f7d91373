"""Carry a cache to other machines, and say what it holds and how it served.

In:     the configured cache folder.
Out:    `export(path)` writes a bundle; `import_(path)` adds its entries; `report()` is a table.
Holds:  a bundle adds only files of the store's own names and never replaces an entry. Its manifest has the checksum of each
        file: nothing is added unless all agree, and with a key nothing unless the manifest was signed with it; checksums
        are compared again when an entry is read. Whoever makes a bundle decides what code your processes load: import
        only what you trust.
"""

import hashlib
import hmac
import io
import json
import os
import re
import tarfile
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from pliant import background, config
from pliant.cache.lines import Lines
from pliant.cache.store import FORMAT, WRITING, Store, usable_root
from pliant.debug import events
from pliant.errors import UserError

_NAME = re.compile(rf"{FORMAT}/([a-z_]+)/[0-9a-f]{{2}}/([0-9a-f]{{64}})/((?:data|key)[.\w]*)")

_DIGEST = re.compile(rb"\b[0-9a-f]{64}\b")
_OF_THIS_MACHINE = ("sources",)  # notes about files
_MANIFEST, _SIGNATURE = "manifest.json", "manifest.hmac"


def _root() -> Path:
    return usable_root(config.get().cache.cache_dir)


def stores() -> list[Store]:
    """Those in the configured folder."""
    return _stores(_root())


def _stores(root: Path) -> list[Store]:
    folder = root / FORMAT
    names = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    return [Store(root, name, config.get().cache.cache_bytes) for name in names]


def export(path: str | os.PathLike[str], models: str | Collection[str] | None = None, key: bytes | None = None) -> int:
    """Write entries into one compressed file; returns how many. `models`: names of the compiled functions and models whose
    entries these are, with the kernels that they call; all that is stored if not given. `key` signs the bundle.
    """
    background.finish(WRITING)  # what was compiled just now is part of it
    root = _root()
    carried = [store for store in _stores(root) if store.namespace not in _OF_THIS_MACHINE]
    found = [(store.namespace, entry.folder) for store in carried for entry in store.entries()]
    if models is not None:
        found = _of_models(found, (models,) if isinstance(models, str) else models)
    files = {str(file.relative_to(root)): file for _, folder in found for file in sorted(folder.iterdir())}
    contents = {name: file.read_bytes() for name, file in sorted(files.items())}
    manifest = json.dumps({name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}, indent=1).encode()
    with tarfile.open(path, "w:gz") as bundle:
        _put(bundle, _MANIFEST, manifest)
        if key is not None:
            _put(bundle, _SIGNATURE, _signed(manifest, key))
        for name, content in contents.items():
            _put(bundle, name, content)
    return len(found)


def _put(bundle: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    bundle.addfile(member, io.BytesIO(content))


def _signed(manifest: bytes, key: bytes) -> bytes:
    return hmac.new(key, manifest, hashlib.sha256).hexdigest().encode()


def _of_models(found: list[tuple[str, Path]], models: Collection[str]) -> list[tuple[str, Path]]:
    """The entries of these names, and kernels but for those that other entries alone name: some are shared by all."""
    texts = {folder: (folder / "data.json").read_bytes() for namespace, folder in found if namespace == "entries"}
    names = {folder: Lines(text)["name"] for folder, text in texts.items()}
    named = [folder for folder, name in names.items() if name in models]
    if missing := sorted(set(models) - set(names.values())):
        raise UserError(
            f"nothing is stored for {', '.join(missing)}",
            kind="bundle",
            why="no process has kept an entry of this name here",
            do="run the model first, with keep_entries as it is by default; `python -m pliant.cache show` lists the names",
        )
    called = {digest for folder in named for digest in _DIGEST.findall(texts[folder])}
    others = {digest for text in texts.values() for digest in _DIGEST.findall(text)} - called
    return [(n, f) for n, f in found if (f in named if n == "entries" else f.name.encode() not in others)]


def import_(path: str | os.PathLike[str], key: bytes | None = None) -> int:
    """Add the entries of a bundle; returns how many were new. `key`: what it must have been signed with. UserError if the
    file is no bundle, or not as it was exported."""
    root = _root()
    try:
        entries = _read(path, key)
        return sum(_add(root, namespace, digest, files) for (namespace, digest), files in entries.items())
    except (OSError, tarfile.TarError) as error:
        raise UserError(
            f"{os.fspath(path)} cannot be imported",
            kind="bundle",
            why=str(error),
            do="make it with pliant.cache.export",
        ) from error


def _read(path: str | os.PathLike[str], key: bytes | None) -> dict[tuple[str, str], dict[str, bytes]]:
    """(namespace, digest) -> file name -> content. Nothing is extracted by path."""
    contents: dict[str, bytes] = {}
    with tarfile.open(path, "r:gz") as bundle:
        for member in bundle:
            expected = member.name in (_MANIFEST, _SIGNATURE) or _NAME.fullmatch(member.name)
            file = bundle.extractfile(member) if expected and member.isfile() else None
            if file is None or member.name in contents:
                raise tarfile.ReadError(f"unexpected member {member.name!r}")
            contents[member.name] = file.read()
    manifest, signature = contents.pop(_MANIFEST, b""), contents.pop(_SIGNATURE, b"")
    if key is not None and not hmac.compare_digest(signature, _signed(manifest, key)):
        raise tarfile.ReadError("it was not signed with this key")
    if _said(manifest) != {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}:
        raise tarfile.ReadError("its files are not those of its manifest")
    found: dict[tuple[str, str], dict[str, bytes]] = {}
    for name, content in contents.items():
        match = _NAME.fullmatch(name)
        assert match is not None
        if match[1] in _OF_THIS_MACHINE:
            raise tarfile.ReadError(f"unexpected member {name!r}")
        found.setdefault((match[1], match[2]), {})[match[3]] = content
    return found


def _said(manifest: bytes) -> object:
    try:
        return json.loads(manifest)
    except ValueError as error:
        raise tarfile.ReadError("it has no manifest") from error


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
