"""`python -m pliant.cache show [TEXT]`: what is on disk; of compiled functions whose name has the text, all of it."""

import json
import sys
from pathlib import Path

from pliant.cache import report
from pliant.cache.bundle import stores
from pliant.cache.lines import Lines
from pliant.cache.store import Entry
from pliant.interruptions import pass_on


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] != "show" or len(arguments) > 2:
        print("usage: python -m pliant.cache show [TEXT]", file=sys.stderr)
        return 2
    print(report())
    wanted = arguments[1] if len(arguments) > 1 else None
    for store in stores():
        if store.namespace == "entries":
            for entry in sorted(store.entries(), key=lambda e: -e.used):
                _show(entry, wanted)
    return 0


def _show(entry: Entry, wanted: str | None) -> None:
    try:
        data = Lines((entry.folder / "data.json").read_bytes())
    except (OSError, ValueError) as error:
        pass_on(error)
        print(f"  {entry.folder.name[:12]} cannot be read: {error}")
        return
    if wanted is not None and wanted not in data["name"]:
        return
    print(f"  {entry.folder.name[:12]} {data['name']}: {len(data['guards'])} guards, {entry.size / 1024:.0f} KiB")
    if wanted is not None:
        _show_all(entry.folder, data)


def _show_all(folder: Path, data: Lines) -> None:
    for name, value in json.loads((folder / "key.json").read_bytes())["parts"].items():
        print(f"    {name} = {value}")
    for row in data["objects"]:
        print(f"    object {' '.join(map(str, row))}"[:160])
    print("    " + data["text"].rstrip().replace("\n", "\n    "))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
