"""Hooks on tensors and modules, registered inside and outside: same times, same order, same gradients."""

import threading

import pytest
import torch
from tests.capture.against_eager import check

import pliant

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), requires_grad=True)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(5, 5)
        self.second = torch.nn.ReLU()

    def forward(self, x):
        return self.second(self.first(x)) * 2


# ---- tensor hooks
def test_a_hook_that_computes_is_captured():
    def f(x, w):
        h = x.sin()
        h.register_hook(lambda g: g * 2 + w)
        return h.exp()

    check(f, X, torch.arange(5.0))


def test_several_hooks_in_order():
    def f(x):
        h = x.sin()
        h.register_hook(lambda g: g * 2)
        h.register_hook(lambda g: g + 1)
        h.register_hook(lambda g: None)
        return h.exp()

    check(f, X)


def test_a_hook_counts_for_gradients_inside():
    def f(x):
        h = x.sin()
        h.register_hook(lambda g: g * 3)
        return torch.autograd.grad(h.sum(), x)[0]

    check(f, X)


def runs_alike(make):
    """Loss, gradient and log of `make(log)`'s program, eagerly and compiled."""
    found = []
    for compiler in (lambda f: f, pliant.compile):
        log = []
        fn = compiler(make(log))
        for _ in range(2):
            x = X.detach().clone().requires_grad_()
            loss = fn(x)
            log.append("forward done")
            loss.sum().backward()
            log.append(x.grad)
        found.append((loss.detach(), log))
    (loss, log), (other, other_log) = found
    torch.testing.assert_close(other, loss)
    assert len(log) == len(other_log)
    for a, b in zip(log, other_log, strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(b, a)
        else:
            assert a == b


def test_effects_happen_in_the_backward():
    def make(log):
        def f(x):
            h = x.sin()
            h.register_hook(lambda g: log.append(g.shape))
            return h.exp()

        return f

    runs_alike(make)


def test_handles():
    def make(log):
        def f(x):
            h = x.sin()
            handle = h.register_hook(lambda g: g * 100)
            k = h * 2
            handle.remove()
            return k

        return f

    runs_alike(make)


def test_hook_on_an_input():
    def make(log):
        def f(x):
            x.register_hook(lambda g: g * 2)
            return x.exp()

        return f

    runs_alike(make)


def test_hooks_from_outside():
    def f(x):
        return x.sin() * 2

    compiled = pliant.compile(f, fullgraph=True)
    x, log = X.detach().clone().requires_grad_(), []
    handle = x.register_hook(lambda g: log.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda p: log.append("accumulated"))
    y = compiled(x)
    y.register_hook(lambda g: log.append("output"))
    y.sum().backward()
    assert log == ["output", "leaf", "accumulated"]
    handle.remove()
    compiled(x).sum().backward()
    assert log[3:] == ["accumulated"]


def test_retain_grad():
    def f(x):
        h = x.sin()
        h.retain_grad()
        return h, h.exp()

    x = X.detach().clone().requires_grad_()
    h, y = pliant.compile(f)(x)
    y.sum().backward()
    torch.testing.assert_close(h.grad, h.exp().detach())


# ---- module hooks
FORWARD = {
    "forward": lambda m: m.register_forward_hook(lambda m, args, out: out * 3),
    "observing": lambda m: m.register_forward_hook(lambda m, args, out: None),
    "kwargs": lambda m: m.register_forward_hook(lambda m, args, kwargs, out: out * 3, with_kwargs=True),
    "always": lambda m: m.register_forward_hook(lambda m, args, out: out * 3, always_call=True),
    "pre": lambda m: m.register_forward_pre_hook(lambda m, args: (args[0] * 3,), prepend=True),
    "pre kwargs": lambda m: m.register_forward_pre_hook(lambda m, args, kw: ((args[0] * 3,), kw), with_kwargs=True),
}


@pytest.mark.parametrize("name", FORWARD)
def test_forward_hooks_are_captured(name):
    net = Net()
    FORWARD[name](net.first)
    FORWARD[name](net)
    check(lambda x: net(x), X)


BACKWARD = {
    "full": lambda m, log: m.register_full_backward_hook(lambda m, gi, go: log.append(type(m).__name__)),
    "changing": lambda m, log: m.register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,)),
    "pre": lambda m, log: m.register_full_backward_pre_hook(lambda m, go: (go[0] * 3,)),
}


@pytest.mark.parametrize("where", ["", "first", "second"])
@pytest.mark.parametrize("name", BACKWARD)
def test_backward_hooks(name, where):
    def make(log):
        net = Net()
        BACKWARD[name](net.get_submodule(where), log)
        return lambda x: net(x)

    runs_alike(make)


def test_a_hook_added_later():
    net, log = Net(), []
    compiled = pliant.compile(net)
    compiled(X)
    handle = net.first.register_forward_hook(lambda m, args, out: log.append(1) or out * 2)
    torch.testing.assert_close(compiled(X), net(X))
    assert log == [1, 1]
    handle.remove()
    torch.testing.assert_close(compiled(X), net(X))
    assert log == [1, 1]


@pytest.mark.parametrize("where", ["", "first"])
@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_that_are_registered_for_each_call_are_compiled_once(register, where):
    pliant.reset()
    net = Net()
    compiled, layer = pliant.compile(net, backend="aot_eager"), net.get_submodule(where)
    for _ in range(12):
        seen = []
        handle = getattr(layer, register)(lambda *given, seen=seen: seen.append(given[-1]))
        out = compiled(X)
        handle.remove()
        (kept,) = seen
        torch.testing.assert_close(out, net(X))
        pre = register.endswith("pre_hook")
        torch.testing.assert_close(kept[0] if pre else kept, X if pre else layer(X))
    assert pliant.stats()["graphs"] == 1


@pytest.mark.parametrize("where", ["", "first"])
@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_backward_hooks_that_are_registered_for_each_call_are_compiled_once(register, where):
    pliant.reset()
    net = Net()
    compiled, layer, found = pliant.compile(net, backend="aot_eager"), net.get_submodule(where), []
    for function in [net, *[compiled] * 10]:
        seen, x = [], X.detach().requires_grad_()
        handle = getattr(layer, register)(lambda *given, seen=seen: seen.append(given[-1][0]))
        function(x).sum().backward()
        handle.remove()
        (kept,) = seen
        found.append((kept, x.grad))
    torch.testing.assert_close(found[1:], found[:1] * 10)
    assert not pliant.stats()["recompiles"]


TIMES = [lambda m, args, out: out * 2, lambda m, args, out: out + 3]


@pytest.mark.parametrize(
    "registered",
    [
        [[0], [1], [0]],
        [[0, 1], [1, 0], [1]],
        [[0, 1], [], [0, 1]],
    ],
)  # fmt: skip
def test_other_hooks_are_other_programs(registered):
    pliant.reset()
    net = Net()
    compiled = pliant.compile(net, backend="aot_eager")
    for chosen in registered * 2:
        handles = [net.first.register_forward_hook(TIMES[i]) for i in chosen]
        torch.testing.assert_close(compiled(X), net(X))
        for handle in handles:
            handle.remove()
    assert pliant.stats()["graphs"] == len({tuple(one) for one in registered})


def test_a_call_without_the_hook_of_another_call_is_no_error():
    layers = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.ReLU())
    compiled, x = pliant.compile(layers, backend="aot_eager"), X.detach()

    def observed(layer):
        found, lock = {}, threading.Lock()

        def observe(module, args, out):
            with lock:
                found["out"] = out * 2

        handle = layer.register_forward_hook(observe)
        compiled(x)
        handle.remove()
        return found["out"]

    for layer, expected in ((layers[0], layers[0](x)), (layers[1], layers(x)), (layers[0], layers[0](x))):
        torch.testing.assert_close(observed(layer), expected * 2)
    torch.testing.assert_close(compiled(x[:3]), layers(x[:3]))


KEYS_USED = {
    "returned": lambda net, y: (y, list(net.first._forward_hooks)),
    "multiplied": lambda net, y: y * next(iter(net.first._forward_hooks)),
    "sized": lambda net, y: y.new_zeros(next(iter(net.first._forward_hooks)) % 7),
    "compared": lambda net, y: y if 1 in list(net.first._forward_hooks) else -y,
    "shown": lambda net, y: y * float(str(next(iter(net.first._forward_hooks)))),
    "ranged": lambda net, y: y * len(range(next(iter(net.first._forward_hooks)))),
    "looked_up": lambda net, y: y * {1: 2.0}.get(next(iter(net.first._forward_hooks)), 3.0),
    "typed": lambda net, y: y * (type(next(iter(net.first._forward_hooks))) is int),
}


@pytest.mark.parametrize("use", KEYS_USED)
def test_keys_of_hooks_that_a_program_uses_are_its_own(use):
    pliant.reset()
    net = Net()

    def program(x):
        return KEYS_USED[use](net, net(x))

    compiled = pliant.compile(program, backend="aot_eager")
    for _ in range(3):
        handle = net.first.register_forward_hook(TIMES[0])
        torch.testing.assert_close(compiled(X), program(X))
        handle.remove()


def test_a_hook_that_removes_itself_runs_once():
    pliant.reset()
    net, log = Net(), []
    compiled = pliant.compile(net, backend="aot_eager")
    for turn in range(3):
        handle = net.first.register_forward_hook(lambda m, args, out: (log.append(turn), handle.remove(), out * 2)[2])
        torch.testing.assert_close(compiled(X), net.second(net.first.forward(X) * 2) * 2)
        assert log == [*range(turn + 1)] and not net.first._forward_hooks
        torch.testing.assert_close(compiled(X), net(X))


def test_a_hook_that_the_first_call_registers_stays():
    layer = torch.nn.Linear(3, 3)

    def program(x):
        if not getattr(layer, "hooked", False):
            layer.register_forward_hook(lambda module, arguments, output: output + 1)
            layer.hooked = True
        return layer(x)

    compiled = pliant.compile(program)
    x = torch.ones(2, 3)
    first = compiled(x)
    torch.testing.assert_close(first, torch.nn.functional.linear(x, layer.weight, layer.bias) + 1)
    assert len(list(layer._forward_hooks.values())) == 1
    torch.testing.assert_close(compiled(x), first)
    torch.testing.assert_close(layer(x), first)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("hooked", [("weight", "bias"), ("0.first.weight", "1.bias")])
def test_leaves_are_reached_in_eagers_order(hooked, later):
    orders = []
    for compiler in (lambda m: m, pliant.compile):
        net, order = torch.nn.Sequential(Net(), torch.nn.Linear(5, 3)), []
        run = compiler(net)
        if later:
            run(X.detach().clone().requires_grad_()).sum().backward()
            net.zero_grad()

        def note(what, leaves=dict(net.named_parameters()), order=order):
            return lambda g: order.append((what, [name for name, p in leaves.items() if p.grad is not None]))

        for name, p in net.named_parameters():
            if name.endswith(hooked):
                p.register_post_accumulate_grad_hook(note(f"after {name}"))
                p.register_hook(note(name))
        x = X.detach().clone().requires_grad_()
        x.register_hook(note("x"))
        run(x).sum().backward()
        orders.append(order)
    assert orders[0] == orders[1] and len(orders[0]) == 1 + 2 * (4 if hooked[0] == "weight" else 2)


def test_what_is_around_a_module_with_backward_hooks_is_captured():
    net, log = Net(), []
    net.second.register_full_backward_pre_hook(lambda m, tangents: (tangents[0] * 2,))
    net.register_full_backward_hook(lambda m, gradients, tangents: log.append((gradients[0], tangents[0])))
    pliant.reset()
    compiled = pliant.compile(net)
    for fn in (net, compiled):
        x = X.detach().clone().requires_grad_()
        fn(x).sum().backward()
        log.append(x.grad)
    torch.testing.assert_close(log[:2], log[2:])
    assert pliant.stats()["graphs"] >= 3


@pytest.mark.filterwarnings("ignore:Error detected in")
@pytest.mark.parametrize("inside", [True, False])
def test_detect_anomaly(inside):
    def f(x):
        h = (x * 0).sqrt().sum()
        if inside:
            h.backward()
        return h

    for fn in (f, pliant.compile(f)):
        x = X.detach().clone().requires_grad_()
        with pytest.raises(RuntimeError, match="returned nan values"), torch.autograd.set_detect_anomaly(True):
            fn(x).backward()


@pytest.mark.filterwarnings("ignore:Error detected in")
def test_anomaly_mode_is_looked_at_where_the_engine_runs_inside():
    @pliant.compile
    def f(x):
        (x * 0).sqrt().sum().backward()

    f(X.detach().clone().requires_grad_())
    with pytest.raises(RuntimeError, match="returned nan values"), torch.autograd.set_detect_anomaly(True):
        f(X.detach().clone().requires_grad_())


def _written_whole(y):
    y.sin_()
    return y * 2


def _written_in_part(y):
    first = y[:1]
    y.mul_(3)
    return first


def _read_before(y):
    z = y * 3
    y.sin_()
    return y + z


@pytest.mark.parametrize("program", [_written_whole, _written_in_part, _read_before])
def test_a_view_that_is_written_leaves_its_hooks_behind(program):
    """They belong to the function that the view had; autograd gives it a new one, of what it is a view of."""
    pliant.reset()
    found = []
    for call in (program, pliant.compile(program, backend="aot_eager")):
        for hooked in (False, True):
            leaf, seen = torch.full((3, 2), 0.5, requires_grad=True), []
            view = (leaf * 2).t()
            if hooked:
                view.register_hook(lambda g, seen=seen: seen.append(g.sum()) or g * 5)
            call(view).sum().backward()
            found.append((leaf.grad, seen))
    torch.testing.assert_close(found[2:], found[:2])
    assert pliant.stats()["graph_breaks"] == 1
