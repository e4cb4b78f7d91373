"""What compiled training programs may do otherwise than eager, each a sentence of docs/training.md, and where eager itself ends.

A difference that is one of these is none to report; what comes behind it need not be equal.
"""

from __future__ import annotations

import re
from typing import Any

# What eager says where it, not the program, is at its end.
LIMITS = (
    "don't yet support saved tensor hooks", "use_reentrant=True", "calling random operations inside of vmap",
    "backward once on any region computed under selective activation checkpoint",
    "A different number of tensors was saved during the original forward and recomputation",
)  # fmt: skip

WRITTEN = "modified by an inplace operation"
VIEWED = "is a view and its base or another view of its base has been modified inplace"  # a saved view of what was written
FREED = "Trying to backward through the graph a second time"
_ASKS = re.compile("backward|grads|batched")
OTHER_DATA = "was given data of size"  # eager computes with data that does not belong to what it saved
_REENTRANT = "torch.utils.checkpoint is incompatible with .grad()"


def documented(program: Any, theirs: tuple[str, str, Any], mine: tuple[str, str, Any]) -> bool:
    """Whether a difference is one that docs/training.md names, behind which the rest need not be equal."""
    text, (line, what, found) = program.call_text(), mine
    if what == "error":  # the engine passes through what was computed before a break for all results behind it
        if found is None and FREED in str(theirs[2]):  # of a region that itself saves nothing
            return "checkpoint(" in text
        return theirs[2] is None and (
            any(one in str(found) for one in (_REENTRANT, OTHER_DATA)) or _breaks(text) and any(one in str(found) for one in (WRITTEN, FREED))
        )
    statements = [one.text for one in program.driver]
    asked = any(map(_ASKS.search, statements[: statements.index(line) + 1]))
    if what == "hooks" and sorted(one[0] for one in found) == sorted(one[0] for one in theirs[2]):  # in another order
        return any(re.fullmatch(r"[xypb]|c\[.*\]", one) for one in program.result)
    if not asked or what.split(" ")[0] not in ("value", "gradient", "hooks", "random"):
        return False
    unseen = ".data." in text and sum("call(f" in one for one in statements) > 1
    return unseen or "preserve_rng_state=False" in text and _breaks(text)


def _breaks(text: str) -> bool:
    return bool(re.search(r"packing\(\)|save_on_cpu|preserve_rng_state=False|autograd\.grad|inference_mode", text))


def keeps_no_copies(program: Any, mine: tuple[str, str, Any]) -> bool:
    """Whether eager may have computed a gradient from what was written since: what checkpoints and offloading keep is no copy."""
    text = program.call_text()
    keeps = "checkpoint(" in text or "save_on_cpu" in text
    return keeps and bool(_ASKS.search(mine[0])) and mine[1].split(" ")[0] in ("value", "gradient", "hooks")
