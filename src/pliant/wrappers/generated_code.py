"""Functions of texts that the compiler wrote: their code, which another process need not compile again.

In:     a text, the file that tracebacks name, what the names in it stand for.
Out:    `define(...)`: runs the text; `code_behind(function)`: the code of the text that defined it; `as_data(code)`: that as JSON;
        `known(data)`: its texts need not be compiled in a block.
Holds:  code is used only for the very text that it was compiled of, by the same version of Python (the key of an entry has
        that). It says nothing of files, and lies in no order that differs from process to process.
"""

from __future__ import annotations

import base64
import contextlib
import contextvars
import hashlib
import linecache
import marshal
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pliant.records import dataclass

_PART = "_pliant_text"  # a global of such functions: the digests of their texts, and the code of each
_WITHOUT_REFERENCES = 2  # the version of the format that does not tell how often an object is used
_known: contextvars.ContextVar[Mapping[str, str] | None] = contextvars.ContextVar("_known", default=None)


@dataclass(frozen=True, slots=True)
class Text:
    """A text of this digest. It is read where its code is not known, and by what shows it."""

    digest: str
    read: Callable[[], str]


class _LinesOf:
    """The lines of a text, read when they are first looked at."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __len__(self) -> int:
        return len(self._read())

    def __getitem__(self, place: Any) -> Any:
        return self._read()[place]

    def _read(self) -> list[str]:
        return self._text.read().splitlines(keepends=True)


def digest_of(text: str) -> str:
    """By which its code is found."""
    return hashlib.sha256(text.encode()).hexdigest()


def define(text: str | Text, file: str, names: dict[str, Any]) -> None:
    """Run the text, with these globals, which get what it defines."""
    if isinstance(text, str):
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    else:
        linecache.cache[file] = (0, None, _LinesOf(text), file)  # type: ignore[assignment]  # which is asked for lines alone
    digest = digest_of(text) if isinstance(text, str) else text.digest
    kept = (_known.get() or {}).get(digest)
    if kept is not None:
        code = _in_file(marshal.loads(base64.b64decode(kept)), file)
    else:
        code = compile(text if isinstance(text, str) else text.read(), file, "exec")
    names[_PART] = {**names.get(_PART, {}), digest: code}
    exec(code, names)  # our own text


def code_of(text: str) -> dict[str, types.CodeType]:
    """The digest of a text and its code, where no function of it is needed here."""
    return {digest_of(text): compile(text, "", "exec")}


@contextlib.contextmanager
def known(data: Mapping[str, str]) -> Iterator[None]:
    """What the block defines of these texts is not compiled."""
    before = _known.set(data)
    try:
        yield
    finally:
        _known.reset(before)


def code_behind(function: Any) -> dict[str, types.CodeType]:
    """The digests of the texts that defined the function and what it uses, and their code; nothing if it was defined
    otherwise."""
    found: dict[str, types.CodeType] = getattr(function, "__globals__", {}).get(_PART, {})
    return dict(found)


def as_data(code: Mapping[str, types.CodeType]) -> dict[str, str]:
    """The code of texts by their digests; without what would be other data in each process."""
    kept = {digest: _in_file(one, "") for digest, one in sorted(code.items()) if not _has_sets(one)}
    return {digest: base64.b64encode(marshal.dumps(one, _WITHOUT_REFERENCES)).decode() for digest, one in kept.items()}


def _in_file(code: types.CodeType, file: str) -> types.CodeType:
    inner = tuple(_in_file(one, file) if isinstance(one, types.CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=file, co_consts=inner)


def _has_sets(code: types.CodeType) -> bool:
    """Whether a constant has an order of its own in each process."""
    return any(_has_sets(one) if isinstance(one, types.CodeType) else type(one) is frozenset for one in code.co_consts)
