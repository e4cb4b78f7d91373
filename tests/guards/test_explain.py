"""What is said of each kind of change: the source, what it was, what it is, and where it can be, what to do."""

import pytest
import torch
from tests.guards.fuzz import World, make_case, outcome

import pliant
from pliant.dispatch.compiled_function import dispatcher_of
from pliant.guards.codegen import Step
from pliant.guards.kinds import Guard, Kind
from pliant.guards.replay import Held, Replay

# facet, change, the beginning of the explanation ("" in advice: not looked at)
ROWS = (
    ("global number", "put_item(ns, 'K#', 4)", "`K0` was 3, is 4"),
    ("global number", "drop_item(ns, 'K#')", "`K0` is not there any more"),
    ("global tuple", "put_item(ns, 'K#', (1, (2, 3), 4))", "length of `K0` was 2, is 3"),
    ("shadowed builtin", "put_item(ns, 'max', min)", "`max` was not there, now it is the function min"),
    ("global function", "put_item(ns, 'f#', g#)", "`f0` was the function f0 ("),
    ("global function", "put(f#, '__code__', g#.__code__)", "the code of `f0` was replaced"),
    ("defaults", "put(f#, '__defaults__', (5,))", "`f0.__defaults__[0]` was 2, is 5"),
    ("function attribute", "drop(f#, 'scale')", "`f0.scale` is not there any more"),
    ("closure container", "put_item(k#, 'a', 3)", "`f0.__closure__[0]['a']` was 2, is 3"),
    ("partial", "put_item(p#.keywords, 'a', 5)", "`p0.keywords['a']` was 2, is 5"),
    ("dict", "put_item(D#, 'c', 6)", "`D0['c']` was not there, now it is 6"),
    ("dict iterated", "drop_item(D#, 'b')", "keys of `D0` were ['a', 'b'], are ['a']"),
    ("set", "after(S#.discard, 2)", "items of `S0` were ['1', '2'], are ['1']"),
    ("range and slice", "put_item(ns, 'R#', range(1, 5))", "value of `R0` was range(1, 4), is range(1, 5)"),
    ("aliased containers", "put_item(B#, 1, [1])", "`B0[1]` and `B0[0]` were the same object, now they differ"),
    ("instance attribute", "put(o#, 'f', lambda t: t - 7)", "`o0.f` was not there, now it is the function <lambda>"),
    ("instance attribute", "put(C#, 'f', lambda self, t: t + 9)", "`C0.f` was the function C0.f ("),
    ("class attribute", "put(B#, 'k', 3)", "`B0.k` was 2, is 3"),
    ("bases", "put(C#, '__bases__', (B#,))", "the bases of class C0 changed"),
    ("bases", "put(o#, '__class__', B#)", "type of `o0` was C0, is B0"),
    ("slot hasattr", "put(o#, 'b', 3)", "`o0` had no `b`, now it has"),
    ("linear", "put(m#, 'bias', None)", "`m0.bias` was a tensor, is None"),
    ("linear", "put(m#.weight, 'requires_grad', False)", "requires_grad of `m0.weight` was True, is False"),
    ("linear", "put(nn.Linear, 'forward', lambda self, t: t + 2)", "`Linear.forward` was the function Linear.forward ("),
    ("training flag", "after(m#.eval)", "`m0.training` was True, is False"),
    ("module hooks", "m#.register_forward_hook(print)", "`m0._forward_hooks` was empty, now holds 1"),
    ("functional", "put(F, 'relu', lambda t: t * 2)", "`torch.nn.functional.relu` was the function relu ("),
    ("tensor method", "put(torch.Tensor, '__add__', lambda a, b: a)", "`Tensor.__add__` was "),
    ("math function", "put(math, 'pi', 3.0)", "`math.pi` was 3.14159"),
    ("anomaly", "torch.autograd.set_detect_anomaly(True); undo(lambda: torch.autograd.set_detect_anomaly(False))",
     "`is_anomaly_enabled()` was False, is True"),
    ("grad mode", "mode(torch.no_grad())", "grad enabled was True, is False"),
    ("global tensor", "put_item(ns, 'w#', torch.ones(4, dtype=torch.float64))",
     "dtype of `w0` was torch.float32, is torch.float64"),
    ("tensor offset", "put_item(ns, 'w#', torch.zeros(6)[1:])", "`w0.storage_offset()` was 0, is 1"),
    ("tensor leaf", "put_item(ns, 'w#', torch.ones(4, requires_grad=True) * 1)", "is_leaf of `w0` was True, is False"),
    ("tensor identity", "put_item(ns, 'b#', a#)", "two of `a0`, `b0` are the same object now"),
    ("aliased tensors written", "put_item(ns, 'b#', a#[:])", "`a0` is written and now shares memory with `b0`"),
    ("conjugate view", "put_item(ns, 'w#', w#.conj())", "`w0` is a conjugate view now"),
    ("enum members", "put(o#, 'e', E#.B)", "`o0.e` was E0.A, is another object: E0.B"),
    ("tying", "put(b#, 'weight', a#.weight)", "two of `a0.weight`, `b0.weight` are the same object now"),
    ("dispatch mode", "mode(Mode#())", "dispatch modes was none, is Mode0"),
    ("module members", "m#.register_parameter('b', None); undo(lambda: m#._parameters.pop('b'))",
     "`m0._parameters['b']` was not there, now it is None"),
    ("sparse or quantized", "put_item(ns, 'w#', torch.eye(4).to_sparse())", "layout of `w0` was torch.strided, is torch.sparse"),
)  # fmt: skip


@pytest.mark.parametrize(("facet", "change", "text"), ROWS, ids=[f"{f}: {c}"[:60] for f, c, _ in ROWS])
def test_change_is_explained(facet, change, text):
    case = make_case(0, facet, change)
    world, x = World(case.text, "state"), torch.linspace(-1, 1, 12).reshape(3, 4)
    compiled = pliant.compile(world.ns["program"], backend="eager")
    outcome(compiled, x)
    world.change(case.change)
    try:
        (failure,) = dispatcher_of(compiled).explain((x,), {})
    finally:
        world.undo()
    assert failure.text.startswith(text)


def test_keys_of_a_large_dict():
    pliant.reset()
    table = {f"key{i}": i for i in range(100)}
    compiled = pliant.compile(lambda x: x + len(list(table)))
    x = torch.ones(1)
    compiled(x)
    del table["key7"]
    table["more"] = 1
    assert compiled(x).item() == 101
    why = next(text for text in pliant.stats()["recompile_reasons"] if "keys of `" in text and "key7" in text)
    assert "without 'key7'" in why and "with 'more'" in why and len(why) < 400


def test_a_tensor_that_retains_its_gradient_by_now():
    compiled = pliant.compile(lambda x: torch.autograd.grad((x * x).sum(), x, retain_graph=True)[0], backend="eager")
    x = torch.rand(3, requires_grad=True) * 2
    compiled(x)
    x.retain_grad()
    torch.testing.assert_close(compiled(x), 2 * x.detach())


def test_what_is_known_to_hold_is_not_compiled_to_explain_a_miss():
    """But the reads that other statements need of it are there."""
    guard = Guard(None, Kind.STATE, None)
    steps = [
        Step("if args[0] > 9: return MISS", guard),
        Step("held = thing.real", None),
        Step("if held != 1: return MISS", guard),
        Step("half = held", None),
        Step("if args[0] != half: return MISS", guard),
    ]
    known = [True]
    replay = Replay(steps, {"thing": 2, "MISS": object()}, Held(1, 1, lambda: known[0]))
    assert replay.first_failing((10,), {})[0] == 0
    index, variables = replay.first_failing((3,), {})
    assert index == 4 and variables["half"] == 2
    assert replay.first_failing((2,), {}) is None
    known[0] = False
    assert replay.first_failing((3,), {})[0] == 2


def test_facts_are_told_in_words():
    class Layer(torch.nn.Module):
        def forward(self, x, sizes, names):
            return x.sin() * len(sizes) * sum(names.values()) * self.training

    told = pliant.explain(Layer(), backend="eager")(torch.ones(1), [], {"a": 1}).guards
    text = "\n".join(told)
    assert "`Tensor` has the same sin along its bases" in text and "the configuration is the same" in text
    assert not any(kind in text for kind in ("type lookup", "no key", "all empty", " a tuple", " a str"))
