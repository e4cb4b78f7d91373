"""Modules made at random that write their arguments and buffers, and return views: as eager, or refused.

    python -m tests.exporting.generated_modules --count 300 --seed 1 [--compiled | --packaged | --new-process]

A module is a chain of steps over two arguments and four buffers; half of them make a tensor, often a view, half write
something. It is exported, saved and loaded (`--new-process`: by a process that has never seen the module), and called twice
at each of three sizes. Results have eager's types, values, strides and shared memory; arguments and buffers are left as eager
leaves them.
"""

import argparse
import copy
import random
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import torch
from torch import nn

import pliant
from pliant.errors import ConstraintError, PliantError

# Steps: `a` and `b` are tensors that exist.
MAKE = (
    "{a} * 2", "{a} + {b}", "{a}.view(-1)", "{a}[0]", "{a}[1:]", "{a}.t()", "{a}.clone()", "{a}.detach()", "{a}.sum(0)",
    "{a}.unsqueeze(0)", "{a}.expand(2, *{a}.shape)", "{a}.reshape(-1)", "{a}.chunk(2)[0]", "{a}.transpose(0, -1)",
    "{a}.contiguous()", "{a}.to(torch.float32)", "{a}.to(torch.float64).to(torch.float32)", "self.a", "self.b", "self.b[1]",
    "self.a.view(2, 2)", "torch.zeros_like({a})", "{a}.new_zeros({a}.shape[0])", "{a}.diagonal()", "{a}.squeeze()", "{a}[:, 1]",
    "{a}[:, ::2]", "torch.stack([{a}, {a}])", "{a}.flip(0)", "self.k * 1.0", "self.q", "{a}.real", "{a}.view_as({a})", "{a}.T",
    "{a}.mT", "{a}.flatten()", "{a}.narrow(0, 0, 1)", "{a}.unbind(0)[0]", "{a}.float()", "torch.where({a} > 0, {a}, {b})",
    "{a}.data", "{a}.swapaxes(0, -1)", "{a}.ravel()",
)  # fmt: skip
WRITE = (
    "{a}.add_({b})", "{a}.mul_(2)", "{a}[0] = 3.0", "{a}[0] += 1", "{a}.copy_({b})", "{a}.zero_()", "self.a.add_({b})",
    "self.a = {a} * 1", "self.a.mul_(0.5)", "self.b[0] = {b}", "self.b[self.k % 3] = 2.0", "self.k += 1", "self.k.add_(2)",
    "self.k = self.k + 1", "self.b = self.b + 1", "self.b.copy_(self.b.flip(0))", "{a}.clamp_(min=0)", "{a}.fill_diagonal_(1.0)",
    "{a}[{a} > 0] = -1.0", "{a}.masked_fill_({b} > 0, 0.5)", "torch.add({b}, 1, out={a})", "{a}.transpose_(0, 1)",
    "{a}.index_add_(0, torch.tensor([0]), {b}[:1])", "{a}.relu_()", "self.q.mul_(-1)", "{a}.t_()", "{a}.unsqueeze_(0)",
    "{a}.squeeze_()", "{a}.set_({b})", "{a}.swapaxes_(0, -1)", "{a}.data.mul_(3)", "{a}.normal_()", "{a} += {b}", "{a} *= 2",
    "self.a += self.b.sum(0)", "self.a[:2], self.a[2:] = self.a[2:].clone(), self.a[:2].clone()", "torch.relu_({a})",
)  # fmt: skip
RETURN = (
    "{a}, {b}", "[{a}, {{'p': {b}, 'q': {c}}}]", "{{'a': {a}, 'n': {b}.shape[0], 's': {c}}}", "{a}", "{a}, {a}, {b}",
    "({a}, self.a), self.k, {b}", "{a}, self.b[0], self.q", "{a}.shape, {b}, x", "x, y, {a}", "None, {a}, True, 3, 'txt', {b}",
)  # fmt: skip
SIZES = (4, 3, 6)  # the first is the example's
_REFUSED = (RuntimeError, IndexError, ValueError, TypeError, AttributeError)


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.register_buffer("a", torch.randn(4, generator=g))
        self.register_buffer("b", torch.randn(3, 4, generator=g))
        self.register_buffer("k", torch.zeros((), dtype=torch.long))
        self.register_buffer("q", torch.randn(2, generator=g), persistent=False)


def arguments(size):
    g = torch.Generator().manual_seed(size)
    return torch.randn(size, 4, generator=g), torch.randn(size, 4, generator=g)


class Generated:
    """A module, as text."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.lines, self.names = [], ["x", "y"]
        wanted = self.rng.choice((3, 5, 8))
        for _ in range(60):
            if len(self.lines) == wanted:
                break
            self._step()
        names = [self.rng.choice(self.names) for _ in range(3)]
        result = self.rng.choice(RETURN).format(**dict(zip("abc", names, strict=True)))
        self.text = "\n    ".join(["def forward(self, x, y):", *self.lines, f"return {result}"])

    def _step(self):
        """One more, if eager can do it at two sizes."""
        a, b = (self.rng.choice(self.names[-4:] if self.rng.random() < 0.7 else self.names) for _ in range(2))
        makes = self.rng.random() < 0.55
        line = self.rng.choice(MAKE if makes else WRITE).format(a=a, b=b)
        name = f"v{len(self.lines)}"
        line = f"{name} = {line}" if makes else line
        forward = _function("\n    ".join(["def forward(self, x, y):", *self.lines, line]))
        try:
            with torch.no_grad():
                for size in SIZES[:2]:
                    forward(Base(), *arguments(size))
        except _REFUSED:
            return
        self.lines.append(line)
        if makes:
            self.names.append(name)

    def module(self):
        return type("Module", (Base,), {"forward": _function(self.text)})().eval()


def _function(text):
    scope = {"torch": torch}
    exec(text, scope)
    return scope["forward"]


def exported(made):
    """As is said, else as the error says that it can be; nothing is known of a program that is exported with fixed sizes."""
    n = pliant.Dim("n")
    try:
        return pliant.export(made.module(), arguments(SIZES[0]), dynamic_shapes=({0: n}, {0: n}))
    except ConstraintError as error:
        scope = {"pliant": pliant}
        exec(error.do.partition("paste\n")[2], scope)
        return pliant.export(made.module(), arguments(SIZES[0]), dynamic_shapes=scope["dynamic_shapes"])


# ---- comparison
def leaves(value):
    """Each leaf of a result with its place."""
    if isinstance(value, dict):
        yield from ((f"[{key!r}]{place}", leaf) for key, one in value.items() for place, leaf in leaves(one))
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{key}]{place}", leaf) for key, one in enumerate(value) for place, leaf in leaves(one))
    else:
        yield "", value


def differs(found, wanted):
    """Why a value is another one; nothing if it is not."""
    ours, theirs = dict(leaves(found)), dict(leaves(wanted))
    if type(found) is not type(wanted) or [*ours] != [*theirs]:
        return f"it is {found!r}, not {wanted!r}"
    return next((f"{place}: {why}" for place in ours if (why := _differs(ours[place], theirs[place]))), "")


def _differs(a, b):
    if not isinstance(b, torch.Tensor):
        return "" if type(a) is type(b) and a == b else f"{a!r}, not {b!r}"
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype} of {tuple(a.shape)}, not {b.dtype} of {tuple(b.shape)}"
    if a.stride() != b.stride() and a.numel():
        return f"strides {a.stride()}, not {b.stride()}"
    return "" if torch.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True) else "other values"


def shared(args, result):
    """Which results are arguments or lie in their memory, and which in that of others."""
    given = [one for one in args if isinstance(one, torch.Tensor)]
    made = [one for _, one in leaves(result) if isinstance(one, torch.Tensor)]
    return [(i, k, one is other, _memory(one) == _memory(other)) for i, one in enumerate(made)
            for k, other in enumerate([*given, *made[:i]]) if one.numel() and other.numel()]  # fmt: skip


def _memory(tensor):
    return tensor.untyped_storage().data_ptr()


def outcomes(made, program, call=None):
    """What became of two rounds of calls: "as eager", "rejected", "eager's error", or why it is wrong."""
    model = made.module()
    for _ in range(2):
        for size in SIZES:
            before = copy.deepcopy(model.state_dict())
            outcome = _outcome(model, call or program, size)
            yield size, outcome
            if outcome != "as eager":
                if outcome == "rejected":
                    model.load_state_dict(before)
                continue
            state = {**dict(model.named_buffers())}
            names = [name for name in state if name in program.state and _differs(program.state[name], state[name])]
            if names:
                yield size, f"wrong: buffer {names[0]}"


def _outcome(model, call, size):
    ours, theirs = arguments(size), arguments(size)
    try:
        torch.manual_seed(7)
        with torch.no_grad():
            wanted = model(*theirs)
    except _REFUSED:
        wanted = _REFUSED
    try:
        torch.manual_seed(7)
        found = call(*ours)
    except (PliantError, *_REFUSED) as error:
        if wanted is _REFUSED:
            return "eager's error"
        return "rejected" if isinstance(error, ConstraintError) else f"wrong: {type(error).__name__}: {error}"
    if wanted is _REFUSED:
        return "wrong: eager raises"
    why = differs(found, wanted) or (differs(ours, theirs) and f"arguments: {differs(ours, theirs)}")
    if not why and (a := shared(ours, found)) != (b := shared(theirs, wanted)):
        why = f"memory is shared as in {a}, not {b}"
    return f"wrong: {why}" if why else "as eager"


def kept(made, path, packaged=False):
    """Write the program; why it is not, if it is not."""
    try:
        program = exported(made)
        if packaged:
            pliant.aot_compile(program, path)
        else:
            program.save(path)
    except PliantError as error:
        return f"not exported: {error.kind}: {str(error).splitlines()[0]}"
    return ""


def tried(seed, path, compiled=False, packaged=False):
    """Every outcome of the program in the file."""
    made = Generated(seed)
    program = pliant.load(path, kernels=packaged)
    return [*outcomes(made, program, program.compile() if compiled else None)]


def _run(options, seeds, folder):
    """Make, or try, the modules of these seeds."""
    total = Counter()
    for seed in seeds:
        path = Path(folder) / str(seed)
        try:
            why = "" if options.load else kept(Generated(seed), path, options.packaged)
            found = [(None, why)] if why else []
            if not why and not options.new_process and path.exists():
                found = tried(seed, path, options.compiled, options.packaged)
        except Exception as error:  # of the compiler, or of the test itself
            found = [(None, f"crash: {type(error).__name__}: {error}")]
        for size, outcome in found:
            total[": ".join(outcome.split(": ")[: 2 if outcome.startswith("not") else 1])] += 1
            if outcome.startswith(("wrong", "crash")):
                print(f"seed {seed} at {size}: {outcome}\n{Generated(seed).text}", flush=True)
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--packaged", action="store_true")
    parser.add_argument("--new-process", action="store_true")
    parser.add_argument("--load", help=argparse.SUPPRESS)  # the folder that the first process has filled
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = range(options.seed, options.seed + options.count)
    if options.load:
        total = _run(options, seeds, options.load)
    else:
        with tempfile.TemporaryDirectory() as folder:
            total = _run(options, seeds, folder)
            if options.new_process:
                flags = [one for one in sys.argv[1:] if one != "--new-process"]
                done = subprocess.run([sys.executable, "-m", "tests.exporting.generated_modules", *flags, "--load", folder], check=False)
                total["wrong or a crash in the new process"] += bool(done.returncode)
    print(dict(total))
    sys.exit(bool(total["wrong"] or total["crash"] or total["wrong or a crash in the new process"]))


if __name__ == "__main__":
    main()
