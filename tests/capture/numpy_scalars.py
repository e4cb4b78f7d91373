"""What programs do with a scalar of NumPy, against eager, over many values of it.

python -m tests.capture.numpy_scalars [TYPE ...]     every program with every type, over ten values
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import torch

import pliant


def adds_in_place(x, n):
    n += 1
    n *= 2
    return x * n, n


def counts_up(x, n):
    count = 0
    while count < n:
        count, x = count + 1, x + 1
    return x, count


def is_a_default(x, n):
    @dataclasses.dataclass
    class Row:
        right: int = n
        left: int = dataclasses.field(default=n)

    return x + 1, Row().right, Row(2).left, repr(Row(1))


def is_a_key_of_hashes(x, n):
    return isinstance(n, Hashable), n.__class__.__hash__ is None, hash((n, 1)), frozenset([n])


# Programs that one graph or two serve, whatever the value.
VARYING: dict[str, Callable[[Any, Any], Any]] = {
    "times a tensor": lambda x, n: x * n,
    "a tensor times": lambda x, n: n * x,
    "beside a tensor": lambda x, n: x + n - n,
    "divides a tensor": lambda x, n: x / (n + 100),
    "arithmetic": lambda x, n: (n + 1, n - 2, n * 3, -n, n * n, 2 - n, n / 2, abs(n)),
    "in place": adds_in_place,
    "comparisons": lambda x, n: (n > 300, n == 200, n <= 100, n != 500),
    "returned": lambda x, n: (n, [n], {"k": n}),
    "types": lambda x, n: (type(n), isinstance(n, int), isinstance(n, float), isinstance(n, np.integer)),
    "abstract types": lambda x, n: (isinstance(n, np.generic), isinstance(n, np.floating), isinstance(n, np.float64)),
    "a branch on the type": lambda x, n: x * 2 if isinstance(n, (int, float)) else x * 3,
    "a Python number": lambda x, n: (int(n), float(n), x * n.item()),
    "its attributes": lambda x, n: (n.dtype, n.shape, n.ndim),
    "a tensor of it": lambda x, n: (torch.tensor(n), torch.as_tensor(n)),
    "an argument of operators": lambda x, n: (torch.full((2,), n), x.clamp(max=n), torch.add(x, x, alpha=int(n))),
    "where": lambda x, n: torch.where(x > n, x, n),
    "other types": lambda x, n: (n + 1.5, n * 2.5, n + np.float32(1), n + np.int8(1)),
    "overflow": lambda x, n: n * 2**62 + 2**61 if isinstance(n, np.int64) else n,
    "rounding": lambda x, n: (n * 0.1 + 0.3, n * np.float32(0.1)),
    "arrays": lambda x, n: (np.arange(3) + n, np.ones(2) * n, x.numpy() * n),
    "a loop over it": lambda x, n: sum((x * i for i in range(3)), n * x),
    "identity": lambda x, n: (n is n, n == n),  # noqa: PLR0124
}
# Programs that ask for the value.
ASKING: dict[str, Callable[[Any, Any], Any]] = {
    "a branch": lambda x, n: x + 1 if n > 3 else x - 1,
    "a branch on float": lambda x, n: x + 1 if n > 0.1 else x - 1,
    "even or odd": lambda x, n: x + 1 if n % 2 == 0 else x - 1,
    "truth": lambda x, n: (x if n else -x, not n, bool(n)),
    "chained": lambda x, n: x + 1 if 0 < n < 5 else x,
    "divisions": lambda x, n: (n // 2, n % 3, divmod(n, 2), 7 // (n + 100)),
    "divisions by zero": lambda x, n: (n // 0, n % 0, n / 0),
    "powers": lambda x, n: (n**2, 2.0**n, n ** np.int64(2)),
    "a power that integers have not": lambda x, n: n**-1,
    "bits": lambda x, n: (n << 1, n >> 1, n & 1, n | 4, n ^ 2, ~n),
    "complex": lambda x, n: complex(n),
    "text": lambda x, n: (str(n), repr(n), f"{n}", "%s" % n, f"{n!r}"),  # noqa: UP031
    "formats": lambda x, n: (f"{n:.2f}", f"{n:5}", "{}".format(n), "%d" % n),  # noqa: UP031, UP032
    "ranges": lambda x, n: list(range(n)),
    "an index": lambda x, n: list(range(10))[n],
    "an index of a tensor": lambda x, n: x[n % 2],
    "a slice": lambda x, n: x[:n],
    "a slice's bounds": lambda x, n: (slice(1, n).indices(5), str(slice(n)), list(range(9)).__getitem__(slice(n))),
    "by name": lambda x, n: (int("11", base=abs(n) + 2), "a b c".split(maxsplit=n)),
    "a size": lambda x, n: torch.zeros(n + 3, 2).sum() + x.repeat(n + 3).sum(),
    "arange": lambda x, n: torch.arange(n + 3),
    "a tensor of several": lambda x, n: torch.tensor([n, n]),
    "math": lambda x, n: (math.sqrt(abs(n)), math.floor(n), math.isnan(n)),
    "functions of NumPy": lambda x, n: (np.sqrt(abs(n)), np.exp(-n), np.maximum(n, 2), np.isnan(n)),
    "round": lambda x, n: (round(n), round(n, 1)),
    "extrema": lambda x, n: (max(n, 3), min(n, 2, 7), sum([n, n]), sorted([n, 2, 5])),
    "a key": lambda x, n: (hash(n), {0: 1, 1: 2, 3: 4}.get(n), {n: 1}),
    "keys of a display": lambda x, n: ({n: 1, "a": 2}, {n}, dict.fromkeys([n]), {(n, 1): 2}),
    "contained": lambda x, n: (n in [1, 2, 3], n in (4, 5), n in {1, 6}),
    "repeats": lambda x, n: ([1] * n, "a" * n),
    "conversions": lambda x, n: (n.astype(np.float32), np.int64(n), np.float32(n)),
    "a loop up to it": counts_up,
    "a default of a dataclass": is_a_default,
    "hashable": is_a_key_of_hashes,
    "json": lambda x, n: json.dumps(float(n)),
    "a method of integers": lambda x, n: n.bit_count() if hasattr(n, "bit_count") else 0,
}
PROGRAMS = VARYING | ASKING
TYPES = (np.int64, np.int32, np.int8, np.uint8, np.float64, np.float32, np.float16, np.bool_, np.uint16)


def values_of(kind: Any) -> list[Any]:
    numbers = [3, 5, 0, 7 if issubclass(kind, np.unsignedinteger) else -2, 4, 9, 2, 6, 8, 1]
    return [kind(number + 0.1 if issubclass(kind, np.floating) else number) for number in numbers]


def described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.tolist()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    if isinstance(value, (tuple, list)):
        return [described(one) for one in value]
    if isinstance(value, dict):
        return [(described(key), described(one)) for key, one in value.items()]
    return type(value).__name__, repr(value)


def outcome(function: Callable[..., Any], value: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return described(function(torch.ones(2), value))
        except Exception as error:
            return type(error)


def differences(name: str, values: Sequence[Any], backend: str = "eager") -> list[str]:
    """Values at which the compiled program differs from eager: [] if all is well."""
    pliant.reset()
    program = PROGRAMS[name]
    compiled = pliant.compile(program, backend=backend)
    wrong = []
    for value in values:
        expected, found = outcome(program, value), outcome(compiled, value)
        if expected != found:
            wrong.append(f"{name} of {value!r}\n  {expected}\n  {found}")
    if pliant.stats()["fallbacks"]:
        wrong.append(f"{name} falls back: {list(pliant.stats()['fallback_reasons'])}")
    return wrong


def main(names: list[str]) -> int:
    found = [
        one
        for kind in ([getattr(np, name) for name in names] or TYPES)
        for name in PROGRAMS
        for one in differences(name, values_of(kind))
    ]
    print(*found, f"{len(found)} wrong", sep="\n")
    return len(found) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
