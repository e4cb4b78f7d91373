"""Modules of one class that are called alike: one is followed, the nodes of the others are copied (`capture/protocols/repeated_calls.py`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.hooks import RemovableHandle

import pliant
from pliant.capture import attempt
from pliant.capture.protocols.repeated_calls import RepeatedCalls, _Call

STATE = {"factor": 1.0, "calls": 0}


@pytest.fixture(autouse=True)
def gradients(request):
    STATE.update(factor=1.0, calls=0)
    with torch.set_grad_enabled(getattr(request, "param", False)):
        yield


both = pytest.mark.parametrize("gradients", [False, True], ids=["no grad", "grad"], indirect=True)


class Block(nn.Module):
    """`kind` chooses what it does beside its layers."""

    def __init__(self, kind: str = "", number: int = 0) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.rest = nn.Sequential(nn.Tanh(), nn.LayerNorm(8))
        self.kind, self.number, self.flag, self.called = kind, number, True, 0
        self.scale: Any = 2.0
        self.drop = nn.Dropout(0.5)
        self.others: list[Any] = []
        self.register_buffer("seen", torch.zeros(8))
        self.wrap = Written()

    def forward(self, x: Tensor, shift: Any = None) -> Any:
        y = self.down(torch.relu(self.up(self.norm(x))).relu_())
        match self.kind:
            case "flag":
                y = y * 2 if self.flag else y
            case "scale":
                y = y * self.scale
            case "count":
                self.called += 1
            case "buffer":
                self.seen += y.mean((0, 1))
                y = y + self.seen
            case "state":
                y = y * STATE["factor"]
            case "random":
                y = y + torch.rand(8)
            case "dropout":
                y = self.drop(y)
            case "others":
                y = y + self.others[0].norm.weight
            case "parameter":
                return x + y, self.norm.weight
            case "view":
                return self.down(self.up(x))
            case "view twice":
                y = (x + y).view(2, 1, 3, 8)
                return y[:, 0], y.view(6, 8)
            case "view of an argument":
                return x.view(2, 1, 3, 8)[:, 0]
            case "view of a parameter":
                return self.norm.weight.view(1, 1, 8)
            case "distinct":
                assert type(x.ndim == 3) is not Tensor
            case "nested write":
                return self.wrap(y)
            case "argument":
                return shift.view(-1)[:8].view(1, 8) + y
        return x + self.rest(y)


class Written(nn.Module):
    """What it makes it writes, and hands out."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Tanh(), nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Net(nn.Module):
    def __init__(self, kind: str = "", depth: int = 4, change: Callable[[Any, Any], Any] | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(kind, k) for k in range(depth))
        self.kind, self.change = kind, change

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            if self.change is not None:
                self.change(self, block)
            x = block(x, x * 2)
            if self.kind.startswith("view"):
                x = self.written(*x) if isinstance(x, tuple) else self.written(x, x)
            x = x[0] * x[1] if self.kind == "parameter" else x
        return x

    def written(self, first: Tensor, second: Tensor) -> Tensor:
        """What is written into the one is seen in the other."""
        if self.kind in ("view", "view twice"):
            first.mul_(0.5)
        return first + second.reshape(first.shape) * torch.ones(2, 3, 8)


def history_of(node: Any) -> Any:
    """What autograd knows of a node's tensor, where gradients are recorded."""
    made = node.meta.get("val")
    if not torch.is_grad_enabled() or not isinstance(made, Tensor):
        return None
    with torch._C.DisableTorchFunction():
        function = made.grad_fn
        behind = [type(one).__name__ for one, _ in function.next_functions] if function is not None else None
        return made.requires_grad, made.is_leaf, type(function).__name__, behind, made._is_view(), made._version


def captured(model: nn.Module, x: Tensor, copies: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, int]:
    """The graphs with what is known of their nodes, the guards, the steps, the result; how many calls of modules were not followed."""
    told: list[str] = []
    count = 0
    finish, copy = attempt._Attempt._finish, _Call.copied

    def noted(self: Any, *args: Any) -> Any:
        trace = finish(self, *args)
        told.extend(str((g.source, g.kind, g.expected, g.origin)) for g in trace.guards)
        told.append(str(self.t.steps))
        return trace

    def counted(self: Any, *args: Any) -> Any:
        nonlocal count
        result = copy(self, *args)
        count += self.place is not None
        return result

    def keep(module: Any, inputs: Any) -> Any:
        told.extend(f"{n.name} {n.target} {n.args} {n.meta.get('val')} {history_of(n)} {n.meta.get('origin')}" for n in module.graph.nodes)
        return module.forward

    pliant.reset()
    with monkeypatch.context() as patch, pliant.config.patch({"capture.repeated_blocks": copies}):
        patch.setattr(attempt._Attempt, "_finish", noted)
        patch.setattr(_Call, "copied", counted)
        compiled = pliant.compile(model, backend=keep)
        torch.manual_seed(0)
        results = [compiled(x), compiled(x)]
    return ([re.sub("0x[0-9a-f]+", "", one) for one in told], results), count


def check(monkeypatch: pytest.MonkeyPatch, make: Callable[[], nn.Module], copies: int | None = None) -> None:
    """Copied or followed, graphs and guards are the same, and eager's results come out."""
    found = []
    for how in (True, False, None):
        torch.manual_seed(0)
        STATE.update(factor=1.0, calls=0)
        monkeypatch.setattr(RemovableHandle, "next_id", 0)
        model, x = make(), torch.randn(2, 3, 8)
        if how is None:
            torch.manual_seed(0)
            wanted = [model(x), model(x)]
            continue
        found.append(captured(model, x, how, monkeypatch))
    (copied, count), (followed, none) = found
    assert copied[0] == followed[0]
    torch.testing.assert_close(copied[1], followed[1], rtol=0, atol=0)
    torch.testing.assert_close(copied[1], wanted)
    assert none == 0
    if copies is not None:
        assert count >= copies if copies else count == 0


def built(change: Callable[[Any], Any], kind: str = "", depth: int = 4) -> Callable[[], nn.Module]:
    """A net of which blocks are changed before it is compiled."""

    def make() -> nn.Module:
        model = Net(kind, depth).eval()
        change(model)
        return model

    return make


def test_blocks_are_copied(monkeypatch) -> None:
    check(monkeypatch, lambda: Net().eval(), copies=2)


@pytest.mark.parametrize(("depth", "copies"), [(1, 0), (2, 0), (3, 1), (6, 4)])
def test_the_first_call_costs_nothing_and_the_second_is_looked_at(monkeypatch, depth, copies) -> None:
    pliant.reset()
    logs: list[int] = []
    kept = RepeatedCalls._kept
    monkeypatch.setattr(RepeatedCalls, "_kept", lambda *args: (logs.append(1), kept(*args))[1])
    assert captured(Net(depth=depth).eval(), torch.randn(2, 3, 8), True, monkeypatch)[1] == copies
    assert bool(logs) == (depth > 1)


def test_blocks_of_two_kinds_in_turn(monkeypatch) -> None:
    check(monkeypatch, built(lambda m: [setattr(b, "flag", k % 2 == 0) for k, b in enumerate(m.blocks)], "flag", 6), copies=2)


@both
@pytest.mark.parametrize("kind", ["view", "view twice", "distinct", "nested write"])
def test_blocks_whose_result_others_could_write(monkeypatch, kind) -> None:
    """Views of memory that the block made, and memory that it wrote."""
    check(monkeypatch, lambda: Net(kind, 5).eval(), copies=2)


@both
@pytest.mark.parametrize("kind", ["view of an argument", "view of a parameter"])
def test_views_of_what_others_made(monkeypatch, kind) -> None:
    check(monkeypatch, lambda: Net(kind, 5).eval(), copies=0)


class Turning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.rest = nn.Linear(8, 8), nn.Sequential(nn.Tanh())

    def turn(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            x = self.turn(x)
        return self.rest(x)


class InTurn(nn.Module):
    def __init__(self, order: tuple[int, ...]) -> None:
        super().__init__()
        self.blocks, self.order = nn.ModuleList(Turning() for _ in range(4)), order

    def forward(self, x: Tensor) -> Tensor:
        x = x * 1
        for k in self.order:
            x = self.blocks[k](x)
        return x


def test_a_call_that_is_kept_asks_what_calls_copied_in_it_asked(monkeypatch) -> None:
    check(monkeypatch, lambda: InTurn((1, 1, 1, 0, 2, 3)).eval())


class Asking(nn.Module):
    """What it makes it has require gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = nn.Sequential(nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(x).requires_grad_()


def test_results_that_are_made_to_require_gradients() -> None:
    blocks, x = nn.ModuleList(Asking() for _ in range(4)), torch.randn(3, 8)

    def asked(x: Tensor) -> list[bool]:
        return [block(x).requires_grad for block in blocks]

    assert pliant.compile(asked, backend="eager")(x) == [True] * 4


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * ctx.saved_tensors[0] * 3


def _without(block: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = block.layer(x) * 2
    return x + y


def _with_hook(block: Any, x: Tensor) -> Tensor:
    y = block.layer(x)
    y.register_hook(lambda grad: grad * 2)
    return y


def _written(block: Any, x: Tensor) -> Tensor:
    y = block.layer(x) + 1
    y.add_(1).view(-1)[:4].mul_(2)
    return y


# what a block does -> whether its calls are copied
HISTORIES: dict[str, tuple[Callable[[Any, Tensor], Any], bool]] = {
    "operators": (lambda block, x: block.layer(x), True),
    "writes into what it made": (_written, True),
    "dropout": (lambda block, x: nn.functional.dropout(block.layer(x), 0.5), True),
    "several results": (lambda block, x: torch.cat(block.layer(x).split(4, -1)[::-1], -1), True),
    "detached": (lambda block, x: block.layer(x).detach() + x, True),
    "no gradients in it": (_without, False),
    "own rule": (lambda block, x: Squared.apply(block.layer(x)), False),
    "checkpoint": (lambda block, x: checkpoint(block.layer, x, use_reentrant=False), False),
    "hook of a tensor": (_with_hook, False),
}  # fmt: skip


class Told(nn.Module):
    def __init__(self, what: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.what = nn.Linear(8, 8), what

    def forward(self, x: Tensor) -> Any:
        return self.what(self, x)


@pytest.mark.parametrize("gradients", [True], indirect=True)
@pytest.mark.parametrize("name", HISTORIES)
def test_histories_are_those_of_following_each_call(monkeypatch, name) -> None:
    """So that the gradients are eager's, too."""
    what, copies = HISTORIES[name]
    pliant.reset()
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), *(Told(what) for _ in range(4))), torch.randn(2, 3, 8)
    check(monkeypatch, lambda: model)
    count = captured(model, x, True, monkeypatch)[1]
    assert bool(count) is copies
    found = []
    for call in (model, pliant.compile(model)):
        torch.manual_seed(0)
        found.append(torch.autograd.grad(call(x).square().sum(), [*model.parameters()], allow_unused=True))
    torch.testing.assert_close(*found)


def test_blocks_in_inference_mode(monkeypatch) -> None:
    with torch.inference_mode():
        check(monkeypatch, lambda: InTurn((0, 1, 2, 3)).eval(), copies=2)


def test_an_option_has_all_calls_followed(monkeypatch) -> None:
    assert captured(Net().eval(), torch.randn(2, 3, 8), False, monkeypatch)[1] == 0


@both
@pytest.mark.parametrize(
    "kind", ["flag", "scale", "count", "buffer", "state", "random", "dropout", "parameter", "argument"]
)
def test_blocks_that_do_more(monkeypatch, kind) -> None:
    check(monkeypatch, lambda: Net(kind).eval())


@both
@pytest.mark.parametrize("kind", ["", "dropout"])
def test_blocks_in_training_mode(monkeypatch, kind) -> None:
    check(monkeypatch, lambda: Net(kind).train())


CHANGES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "flag": ("flag", lambda m: setattr(m.blocks[2], "flag", False)),
    "number": ("scale", lambda m: setattr(m.blocks[2], "scale", 3.0)),
    "number of another type": ("scale", lambda m: setattr(m.blocks[2], "scale", 2)),
    "true where one was": ("scale", lambda m: [setattr(b, "scale", one) for b, one in zip(m.blocks, (1, True, 1, 1))]),
    "negative zero": ("scale", lambda m: [setattr(b, "scale", one) for b, one in zip(m.blocks, (0.0, -0.0, 0.0, -0.0))]),
    "training mode of one": ("dropout", lambda m: m.blocks[2].train()),
    "training mode of a part": ("dropout", lambda m: m.blocks[2].drop.train()),
    "shared layer": ("", lambda m: setattr(m.blocks[2], "up", m.blocks[0].up)),
    "shared parameter": ("", lambda m: setattr(m.blocks[3].up, "weight", m.blocks[1].up.weight)),
    "layers tied in one": ("", lambda m: setattr(m.blocks[2], "norm", m.blocks[2].rest[1])),
    "layers tied in most": ("", lambda m: [setattr(b, "norm", b.rest[1]) for b in m.blocks[:3]]),
    "same block twice": ("", lambda m: m.blocks.__setitem__(2, m.blocks[1])),
    "hook": ("", lambda m: m.blocks[2].register_forward_hook(lambda module, args, out: out * 2)),
    "hook of a part": ("", lambda m: m.blocks[2].up.register_forward_pre_hook(lambda module, args: (args[0] + 1,))),
    "parameter of another dtype": ("", lambda m: m.blocks[2].norm.double().float()),
    "parameter that needs no gradient": ("", lambda m: m.blocks[2].up.weight.requires_grad_(False)),
    "transposed parameter": ("", lambda m: setattr(m.blocks[2].up, "weight", nn.Parameter(torch.randn(8, 16).t()))),
    "no bias": ("", lambda m: setattr(m.blocks[2].up, "bias", None)),
    "wider": ("", lambda m: (setattr(m.blocks[2], "up", nn.Linear(8, 32)), setattr(m.blocks[2], "down", nn.Linear(32, 8)))),
    "another epsilon": ("", lambda m: setattr(m.blocks[2].norm, "eps", 0.5)),
    "another class inside": ("", lambda m: m.blocks[2].rest.__setitem__(0, nn.Sigmoid())),
    "longer sequence": ("", lambda m: m.blocks[2].rest.append(nn.Tanh())),
    "own forward": ("", lambda m: setattr(m.blocks[2].rest[0], "forward", torch.sigmoid)),
    "own forward of the block": ("", lambda m: setattr(m.blocks[2], "forward", lambda x, shift: x + shift)),
    "first one by number": ("others", lambda m: [b.others.append(m.blocks[0]) for b in m.blocks]),
    "next one": ("others", lambda m: [b.others.append(m.blocks[(k + 1) % 4]) for k, b in enumerate(m.blocks)]),
    "itself": ("others", lambda m: [b.others.append(b) for b in m.blocks]),
    "same list": ("others", lambda m: [setattr(b, "others", [m.blocks[1]]) for b in m.blocks]),
}  # fmt: skip


OF_GRADIENTS = [
    "training mode of one", "shared parameter", "layers tied in one", "parameter that needs no gradient", "hook", "no bias", "same block twice",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "gradients"), [*((name, False) for name in CHANGES), *((name, True) for name in OF_GRADIENTS)], indirect=["gradients"]
)
def test_a_block_that_differs(monkeypatch, name) -> None:
    kind, change = CHANGES[name]
    check(monkeypatch, built(change, kind))


def _flip(model: Any, block: Any) -> None:
    block.flag = block.number != 2


def _scale(model: Any, block: Any) -> None:
    STATE["factor"] = STATE["factor"] + 1


def _set_one(model: Any, block: Any) -> None:
    if block.number == 1:
        model.blocks[2].scale = 5.0


def _swap(model: Any, block: Any) -> None:
    if block.number == 1:
        model.blocks[2].up = model.blocks[0].up


@pytest.mark.parametrize(
    ("kind", "change"), [("flag", _flip), ("state", _scale), ("scale", _set_one), ("", _swap), ("", _scale)]
)
def test_what_the_program_stores_between(monkeypatch, kind, change) -> None:
    pliant.reset()
    check(monkeypatch, lambda: Net(kind, change=change).eval())


def test_what_is_changed_later_is_guarded() -> None:
    pliant.reset()
    torch.manual_seed(0)
    model, x = Net("flag").eval(), torch.randn(2, 3, 8)
    compiled = pliant.compile(model, backend="eager")
    torch.testing.assert_close(compiled(x), model(x))
    for block, change in zip(model.blocks, (None, None, lambda b: setattr(b, "flag", False), lambda b: b.norm.register_forward_hook(lambda *_: x))):
        if change is not None:
            change(block)
            torch.testing.assert_close(compiled(x), model(x))


def test_sizes_that_vary(monkeypatch) -> None:
    pliant.reset()
    torch.manual_seed(0)
    model = Net().eval()
    compiled = pliant.compile(model, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(2, rows, 8)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


def test_work_does_not_grow_with_the_depth(monkeypatch) -> None:
    followed: list[int] = []
    for depth in (4, 12):
        count = captured(Net(depth=depth).eval(), torch.randn(2, 3, 8), True, monkeypatch)[1]
        followed.append(depth - count)
    assert followed[0] == followed[1]


def exported(make: Callable[[], nn.Module], copies: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """What an export gives, or why there is none; how many calls were not followed."""
    torch.manual_seed(0)
    STATE.update(factor=1.0, calls=0)
    model, count, copy = make(), 0, _Call.copied

    def counted(self: Any, *args: Any) -> Any:
        nonlocal count
        result = copy(self, *args)
        count += self.place is not None
        return result

    pliant.reset()
    with monkeypatch.context() as patch, pliant.config.patch({"capture.repeated_blocks": copies}):
        patch.setattr(_Call, "copied", counted)
        try:
            program = pliant.export(model, (torch.randn(2, 3, 8),), dynamic_shapes=({1: pliant.Dim("rows")},))
        except pliant.errors.PliantError as error:
            return str(error), count
    return f"{program}\n{program.notes}\n{list(program.state_dict())}", count


EXPORTED: dict[str, tuple[Callable[[], nn.Module], int]] = {
    **{kind: (lambda kind=kind: Net(kind, 5).eval(), 0) for kind in ("count", "buffer", "random", "argument", "view")},
    **{name: (built(change, kind), 0) for name, (kind, change) in CHANGES.items() if name in ("flag", "number", "shared parameter")},
    "plain": (lambda: Net(depth=5).eval(), 3),
    "stored between": (lambda: Net("flag", change=_flip).eval(), 0),
}


@pytest.mark.parametrize("name", EXPORTED)
def test_exports_copy_blocks_too(monkeypatch, name) -> None:
    make, copies = EXPORTED[name]
    copied, followed = exported(make, True, monkeypatch), exported(make, False, monkeypatch)
    assert copied[0] == followed[0]
    assert copied[1] >= copies and followed[1] == 0
