"""Keys of the on-disk cache: ordered, named parts.

In:     what an entry depends on, part by part.
Out:    `Key`, whose `digest` names the entry.
Holds:  two keys are equal exactly if all their parts are; no part's text can run into the next one's.
Reads on: `store.py`.
"""

import functools
import hashlib
import json
import platform
from pathlib import Path

from pliant.interruptions import pass_on
from pliant.records import dataclass

SHORT = 120  # a longer value is kept as its digest in an entry's description


@dataclass(frozen=True, slots=True)
class Key:
    """`Key((("text", c_source), ("flags", "-O3")), maker="gcc 12.2")`.

    `maker` made the entry, and whoever has a maker uses its own entries. None has none, and takes anybody's.
    """

    parts: tuple[tuple[str, str], ...]
    maker: str | None = ""

    @property
    def content(self) -> str:
        """40 hexadecimal digits of what the parts say."""
        return _hash(json.dumps(self.parts))[:40]

    @property
    def digest(self) -> str:
        """64 hexadecimal digits: the content's, then the maker's."""
        return self.content + _hash(self.maker or "")[:24]

    def summary(self) -> dict[str, str]:
        """Each part in a short form: the text, or the digest of a long text. Tells keys apart part by part."""
        named = (*self.parts, *((("maker", self.maker),) if self.maker else ()))
        return {name: value if len(value) <= SHORT else _digest(value) for name, value in named}


def make_key(*, maker: str | None = "", **parts: object) -> Key:
    """A key of these parts, in the order given. Values are taken as text."""
    return Key(tuple((name, str(value)) for name, value in parts.items()), maker)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(text: str) -> str:
    return "sha256:" + _hash(text)


@functools.cache
def machine() -> str:
    """What code built for `-march=native` depends on: the processor and the features it offers."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError as error:
        pass_on(error)
        return f"{platform.machine()} {platform.processor()}"
    facts = {line.split(":")[0].strip(): line for line in lines if ":" in line}
    wanted = [facts.get(k, "") for k in ("model name", "flags", "Features", "CPU part")]
    return f"{platform.machine()} {_digest(''.join(wanted))}"
