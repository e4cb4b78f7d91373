"""Tables of programs: each is run by Python and compiled, several times, and must do the same."""

import argparse
import collections
import linecache

import torch

import pliant


def differs(name, text, call, turns, **options):
    """What compiled code does otherwise than Python, if anything. `call(namespace, function, turn)`: what a call gives."""
    file = f"<{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace = {}
    exec(compile(text, file, "exec"), namespace)
    pliant.reset()
    compiled = pliant.compile(namespace["program"], backend="eager", **options)
    for turn in range(turns):
        expected = repr(shown(call(namespace, namespace["program"], turn)))
        found = repr(shown(call(namespace, compiled, turn)))
        if found != expected:
            return f"call {turn}:\n  Python   {expected}\n  compiled {found}"
    return None


def shown(value):
    """Tensors as lists."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value)(map(shown, value))
    return dict(value) if isinstance(value, collections.UserDict) else value


def run_table(rows, difference, about):
    """The command of a table."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="", help="TEXT+TEXT: the rows whose name has all of them")
    parser.add_argument("--show", action="store_true", help="print the programs")
    parser.add_argument("--most", type=int, default=20, help="how many differences are printed")
    options = parser.parse_args()
    chosen = [row for row in rows if all(word in row.name for word in options.only.split("+"))]
    chosen = chosen[options.first :: options.every]
    wrong, skipped = 0, collections.Counter()
    for row in chosen:
        found = difference(row)
        skipped.update(pliant.stats()["fallback_reasons"])
        if found is not None:
            wrong += 1
            if wrong <= options.most:
                print(row.name, row.text() if options.show else "", found, sep="\n", flush=True)
    print(f"{len(chosen)} rows, {wrong} differ; run eagerly: {dict(skipped)}")
