"""Programs over random reachable state: change one piece of it after compilation, and compare with eager; then change it back.

`python -m tests.guards.fuzz --count 2000 --seed 0` prints each disagreement with its program and the change.
"""

import argparse
import contextlib
import copy
import linecache
import random
import types
import warnings
from dataclasses import dataclass

import torch
from tests.guards import state_facets
from tests.guards.absent_names import ABSENT
from torch import nn

import pliant

FACETS = state_facets.FACETS + ABSENT

PRELUDE = (
    "import copy, types\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F\ntorch.manual_seed(0)\n"
)
BALLAST = "ballast = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))\n"  # enough guards for them to be watched

# How the program reaches the expressions: in its own body, through helpers, methods, closures, modules.
SHAPES = {
    "plain": "def program(x):\n    a = x * 1\n{body}    return a\n",
    "helper": "def helper(x, a):\n{body}    return a\n\ndef program(x):\n    return helper(x, x * 1) * 2\n",
    "method": "class Program:\n    def step(self, x, a):\n{body2}        return a\n    def __call__(self, x): return self.step(x, x * 1)\n"
    "program = Program()\n",
    "closure": "def make():\n    scale = 2\n    def inner(x):\n        a = x * scale\n{body2}        return a\n    return inner\nprogram = make()\n",
    "module": "class Program(nn.Module):\n    def forward(self, x):\n        a = x * 1\n{body2}        return a\nprogram = Program()\n",
    "loop": "def program(x):\n    a = x * 1\n    for _ in range(2):\n{body2}        a = a * 0.5\n    return a\n",
}


@dataclass
class Case:
    """One program, its state as text, and the changes to make."""

    text: str
    change: str
    facet: str
    before: int  # calls before the change
    dynamic: bool | None


def make_case(seed: int, only: str = "", change: str = "") -> Case:
    """A program of some facets; `only`: of this one, `change`: with this change."""
    rng = random.Random(seed)
    chosen = rng.choices(FACETS, [len(f.changes) for f in FACETS], k=rng.choice((1, 2, 2, 3)))
    if only:
        chosen = [next(f for f in FACETS if f.name == only)]
    setups, lines = [], []
    for number, facet in enumerate(chosen):
        setups.append(facet.setup.replace("#", str(number)))
        lines.append(f"a = a + ({facet.use.replace('#', str(number))})")
    if rng.random() < 0.5:
        setups.append(BALLAST)
        lines.append("a = a + ballast(x)")
    target = rng.randrange(len(chosen)) if not only else 0
    change = (change or rng.choice(chosen[target].changes)).replace("#", str(target))
    rng.shuffle(lines)
    shape = SHAPES[rng.choice(list(SHAPES))]
    body = "".join(f"    {line}\n" for line in lines)
    body2 = "".join(f"        {line}\n" for line in lines)
    text = PRELUDE + "\n".join(setups) + "\n" + shape.format(body=body, body2=body2)
    return Case(text, change, chosen[target].name, rng.choice((1, 2, 3)), rng.choice((None, None, True)))


class World:
    """The state of one run: its namespace, and how to take changes back."""

    def __init__(self, text: str, name: str) -> None:
        self.module = types.ModuleType(name)
        self.ns = self.module.__dict__
        self.undos = []
        file = f"<{name} {id(self)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), self.ns)

    def change(self, text: str) -> None:
        names = {n: getattr(self, n) for n in ("put", "drop", "put_item", "drop_item", "after", "mode")}
        # a namespace of its own, so that nothing but the change is seen in the program's
        exec(text, {**self.ns, **names, "ns": self.ns, "undo": self.undos.append})

    def undo(self) -> None:
        while self.undos:
            self.undos.pop()()

    def put(self, obj, name, value):
        if (
            isinstance(obj, torch.Tensor)
            or not hasattr(obj, "__dict__")
            or name in ("__class__", "__code__", "__defaults__", "__kwdefaults__", "__bases__", "__name__")
        ):
            missing = not hasattr(obj, name)
            old = None if missing else getattr(obj, name)
            if isinstance(old, torch.Tensor) and name == "data":
                old = old.detach()
        else:
            members = [obj.__dict__, *(obj.__dict__.get(m, {}) for m in ("_parameters", "_buffers", "_modules"))]
            found = [m for m in members if name in m]
            missing, old = not found, found[0][name] if found else getattr(obj, name, None)
        setattr(obj, name, value)

        def restore():
            try:
                delattr(obj, name)
            except AttributeError:  # a setter took it
                setattr(obj, name, old)

        def store():
            setattr(obj, name, old)

        self.undos.append(restore if missing else store)

    def drop(self, obj, name):
        old = obj.__dict__[name] if hasattr(obj, "__dict__") else getattr(obj, name)
        delattr(obj, name)
        self.undos.append(lambda: setattr(obj, name, old))

    def put_item(self, obj, key, value):
        missing = hasattr(obj, "keys") and key not in obj
        old = (
            None
            if missing
            else copy.copy(obj[key])
            if type(obj).__name__ == "ndarray"
            else obj[key]
            if not missing
            else None
        )
        obj[key] = value
        self.undos.append((lambda: obj.__delitem__(key)) if missing else (lambda: obj.__setitem__(key, old)))

    def drop_item(self, obj, key):
        old = obj[key]
        del obj[key]
        self.undos.append(lambda: obj.__setitem__(key, old))

    def after(self, function, *args):
        """A change with no way back; containers that methods change are copied and restored."""
        owner = getattr(function, "__self__", None)
        if isinstance(owner, (list, dict, set)) or type(owner).__name__ == "deque":
            kept = copy.copy(owner)

            def restore():
                owner.clear()
                (owner.extend if hasattr(owner, "extend") else owner.update)(kept)

            self.undos.append(restore)
        function(*args)

    def mode(self, manager):
        manager.__enter__()
        self.undos.append(lambda: manager.__exit__(None, None, None))


def outcome(function, x, ns=None):
    """What a call gives: the tensor and the gradients of the parameters in a namespace, or the exception."""
    torch.manual_seed(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = function(x)
            return "ok", out, gradients(out, ns or {})
    except Exception as error:
        return type(error).__name__, "", []


def gradients(out, ns) -> list:
    """What a backward pass adds up for the parameters; those that had a gradient before are left alone."""
    if not isinstance(out, torch.Tensor) or not out.requires_grad or not torch.is_grad_enabled():
        return []
    modules = [value for value in ns.values() if isinstance(value, nn.Module)]
    leaves = [p for m in modules for p in m.parameters()] + [v for v in ns.values() if isinstance(v, torch.Tensor)]
    leaves = [p for p in dict.fromkeys(leaves) if p.is_leaf and p.requires_grad]
    if any(p.grad is not None for p in leaves):
        return []
    try:
        out.float().sum().backward()
        return [None if p.grad is None else p.grad.float().sum().item() for p in leaves]
    finally:
        for p in leaves:
            p.grad = None


def agree(got, want) -> bool:
    if got[0] != want[0] or len(got[2]) != len(want[2]):
        return False
    for mine, theirs in zip(got[2], want[2], strict=True):
        if (mine is None) != (theirs is None) or (mine is not None and abs(mine - theirs) > 1e-3 * (1 + abs(theirs))):
            return False
    a, b = got[1], want[1]
    if not isinstance(b, torch.Tensor):
        return type(a) is type(b) and a == b
    if (
        type(a).__name__ != type(b).__name__
        or a.dtype != b.dtype
        or a.shape != b.shape
        or a.requires_grad != b.requires_grad
    ):
        return False
    if b.layout is not torch.strided or b.device.type == "meta":
        return a.layout is b.layout and a.device == b.device
    with torch._C.DisableTorchFunctionSubclass():
        return torch.allclose(a.detach(), b.detach(), rtol=1e-4, atol=1e-4, equal_nan=True)


def show(outcome_) -> str:
    kind, value, grads = outcome_
    if isinstance(value, torch.Tensor) and value.numel() and value.device.type != "meta":
        with contextlib.suppress(Exception):
            return f"{type(value).__name__} {tuple(value.shape)} {value.dtype} grad={value.requires_grad} first={value.flatten()[0].item():.4f} {grads}"
    return f"{kind} {value!r}"[:100]


def disagreement(seed: int, only: str = "", backend: str = "eager", change: str = "") -> str:
    """What differs from eager in this case; empty if nothing does."""
    case = make_case(seed, only, change)
    eager, ours = World(case.text, "state"), World(case.text, "state")
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    compiled = pliant.compile(ours.ns["program"], backend=backend, dynamic=case.dynamic)
    for when in ("first", "changed", "back"):
        if when == "changed":
            try:
                eager.change(case.change)
            except (TypeError, AttributeError, RuntimeError):  # Python or PyTorch refuses such a change
                eager.undo()
                return ""
            want = [outcome(eager.ns["program"], x, eager.ns) for _ in range(2)]
            eager.undo()
            ours.change(case.change)
            got = [outcome(compiled, x, ours.ns) for _ in range(2)]
            ours.undo()
        else:
            want = [outcome(eager.ns["program"], x, eager.ns) for _ in range(case.before)]
            got = [outcome(compiled, x, ours.ns) for _ in range(case.before)]
        for g, w in zip(got, want, strict=True):
            if not agree(g, w):
                return f"seed {seed} [{case.facet}] {when}: {case.change}\n  eager    {show(w)}\n  compiled {show(g)}\n{case.text}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description="Change state behind compiled programs.")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--facet", default="", help="only changes of this facet")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--limit", type=int, default=64, help="entries; with 1, most calls run past it")
    options = parser.parse_args()
    bad = 0
    with pliant.config.patch(recompile_limit=options.limit):
        for seed in range(options.seed, options.seed + options.count):
            found = disagreement(seed, options.facet, options.backend)
            if found:
                bad += 1
                print(found, "-" * 80, sep="\n")
    print(f"{options.count} cases, {bad} disagreements")


if __name__ == "__main__":
    main()
