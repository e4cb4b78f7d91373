"""What the pages call `pliant.a.b` is there after `import pliant` alone."""

import re
from pathlib import Path

import own_process

DOCS = Path(__file__).resolve().parents[2]

_LOOKS = """
import operator, pliant, sys
missing = []
for name in sys.argv[1:]:
    try:
        operator.attrgetter(name.removeprefix("pliant."))(pliant)
    except AttributeError as error:
        missing.append(f"{name}: {error}")
print("\\n".join(missing), end="")
"""


def test_names_in_the_pages_exist():
    pages = [DOCS / "README.md", *(DOCS / "docs").rglob("*.md")]
    text = "\n".join(re.sub(r"`python -m [\w.]+", "", page.read_text()) for page in pages)
    names = set(re.findall(r"(?<![\w./])pliant(?:\.[A-Za-z_]\w*)+(?!\w*/)", text)) - {"pliant.git"}
    assert "pliant.debug.timing.breakdown" in names and "pliant.debug.events.set_logs" in names
    assert own_process.ran(_LOOKS, *sorted(names), check=True).stdout == ""
