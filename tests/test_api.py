"""Arguments of the public functions, marks, statistics."""

import copy
import functools
import pickle

import pytest
import torch

import pliant
from pliant.debug import events
from pliant.dispatch.compiled_function import dispatcher_of
from pliant.errors import ConfigError, RecompileError

X = torch.randn(3, 8)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"mode": "fastest"}, "unknown-mode"),
        ({"mode": 3}, "wrong-type"),
        ({"options": {"nope": 1}}, "unknown-option"),
        ({"options": {"fuse": 3}}, "wrong-type"),
        ({"options": 3}, "wrong-type"),
        ({"backend": "plaint"}, "unknown-backend"),
        ({"backend": 3}, "wrong-type"),
        ({"fullgraph": 1}, "wrong-type"),
        ({"dynamic": "yes"}, "wrong-type"),
    ],
)
def test_wrong_arguments(arguments, kind):
    for target in (torch.relu, None):
        with pytest.raises(ConfigError) as found:
            pliant.compile(target, **arguments)
        assert found.value.kind == kind and found.value.do


def test_wrong_targets():
    with pytest.raises(ConfigError, match="cannot be called"):
        pliant.compile(3)
    with pytest.raises(ConfigError, match=r"use pliant\.compile"):
        pliant.compile_(torch.relu)
    with pytest.raises(ConfigError):
        pliant.allow_in_graph(3)


def test_unknown_backend_suggests():
    with pytest.raises(ConfigError, match="did you mean 'eager'"):
        pliant.compile(torch.relu, backend="eagre")
    assert pliant.list_backends() == ["aot_eager", "eager", "pliant"]
    assert callable(pliant.lookup_backend("eager"))


def test_user_backend_gets_graph_and_inputs():
    seen = []

    def backend(module, inputs):
        seen.append((module, inputs))
        return module.forward

    f = pliant.compile(lambda x: torch.relu(x) + 1, backend=backend)
    assert torch.equal(f(X), torch.relu(X) + 1)
    assert isinstance(seen[0][0], torch.fx.GraphModule) and seen[0][1][0] is X


def compiled(fn, **arguments):
    return pliant.compile(fn, backend="eager", **arguments)


def code_of(fn):
    return dispatcher_of(fn).entries[0].graph.module.code


def test_disable():
    calls = []

    @pliant.disable
    def secret(x):
        calls.append(1)
        return x + 1

    f = compiled(lambda x: secret(x * 2) * 3)
    for _ in range(3):
        assert torch.equal(f(X), (X * 2 + 1) * 3)
    assert len(calls) == 3


def test_copies_of_a_disabled_module_have_parameters_of_their_own():
    module = pliant.disable(torch.nn.Linear(8, 8))
    other = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    f = compiled(lambda x: other(x * 2) + 1)
    events.reset()
    assert torch.equal(f(X), torch.ones(3, 8)) and events.stats()["graph_breaks"] == 1
    assert torch.equal(pickle.loads(pickle.dumps(module))(X), module(X))


def test_a_disabled_class_stays_a_class():
    @pliant.disable
    class Layer(torch.nn.Module):
        def forward(self, x):
            return x.cos()

    class Derived(Layer):
        pass

    for layer in (Layer(), Derived()):
        assert isinstance(layer, Layer)
        f = compiled(lambda x, layer=layer: layer(x + 1) * 2)
        events.reset()
        assert torch.equal(f(X), (X + 1).cos() * 2) and events.stats()["graph_breaks"] == 1


def test_objects_of_a_disabled_class_are_made_eagerly():
    @pliant.disable
    class Twice:
        def __init__(self, x):
            self.result = x * 2

    f = compiled(lambda x: Twice(x + 1).result)
    events.reset()
    assert torch.equal(f(X), (X + 1) * 2) and events.stats()["graph_breaks"] == 1


@pytest.mark.parametrize("disable", [pliant.disable, torch.compiler.disable])
def test_a_break_says_the_reason_that_was_given(disable):
    @disable(reason="it talks to a server")
    def asked(x):
        return x

    def breaks(x):
        pliant.graph_break(msg="to look at it")
        return asked(x)

    (first, second) = pliant.explain(breaks, backend="eager")(X).breaks
    assert "graph_break was called: to look at it" in first and "it talks to a server" in second


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda x: pliant.disable(3), "not-callable"),
        (lambda x: pliant.substitute_in_graph(3), "not-callable"),
        (lambda x: pliant.mark_dynamic(x, "batch"), "wrong-type"),
        (lambda x: pliant.mark_dynamic(x, 1.0), "wrong-type"),
        (lambda x: pliant.mark_dynamic(x, 0, min=5, max=3), "wrong-range"),
        (lambda x: pliant.mark_dynamic(x, 0, min="2"), "wrong-range"),
        (lambda x: pliant.mark_dynamic(x, [0, 2]), "wrong-dimension"),
    ],
)
def test_wrong_arguments_of_marks(call, kind):
    x = torch.ones(2, 3)
    with pytest.raises(ConfigError) as found:
        call(x)
    assert found.value.kind == kind and not x.__dict__


def test_the_limit_may_be_an_option_of_the_function():
    f = compiled(lambda x, s: x + len(s), options={"recompile_limit": 2})
    events.reset()
    with pytest.warns(pliant.PliantWarning, match="compiled 2 times"):
        for word in ("a", "bb", "ccc", "dddd"):
            assert torch.equal(f(X, word), X + len(word))
    assert events.stats()["graphs"] == 2 and events.stats()["fallbacks"] == 2


def test_allow_in_graph():
    @pliant.allow_in_graph
    def opaque(x):
        return x * 2 + 1

    f = compiled(lambda x: opaque(x) - 1)
    assert torch.equal(f(X), X * 2 + 1 - 1)
    assert "opaque" in code_of(f)


class Shifted:
    def __call__(self, x):
        return x * 2 + 1


@pytest.mark.parametrize("opaque", [Shifted(), functools.partial(torch.mul, 2), torch.nn.Softplus()])
def test_allow_in_graph_of_objects_that_have_no_name(opaque):
    pliant.allow_in_graph(opaque)
    f = compiled(lambda x: opaque(x) - 1, fullgraph=True)
    assert torch.equal(f(X), opaque(X) - 1)
    assert f"{type(opaque).__name__}(" in code_of(f)


def test_assume_constant_result():
    calls = []

    @pliant.assume_constant_result
    def number():
        calls.append(1)
        return 7

    f = compiled(lambda x: x * number())
    assert torch.equal(f(X), X * 7) and torch.equal(f(X), X * 7)
    assert len(calls) == 1


def test_substitute():
    def slow(x):
        return print(x)

    @pliant.substitute_in_graph(slow)
    def fast(x):
        return x + 5

    f = compiled(lambda x: slow(x) * 2, fullgraph=True)
    assert torch.equal(f(X), (X + 5) * 2)


def test_disallow_in_graph():
    def g(x):
        return x + 1

    pliant.disallow_in_graph(g)
    f = compiled(lambda x: g(x * 2))
    events.reset()
    assert torch.equal(f(X), X * 2 + 1)
    assert events.stats()["graph_breaks"] == 1


def test_is_compiling():
    f = compiled(lambda x: x + (1 if pliant.is_compiling() else 0))
    assert torch.equal(f(X), X + 1)
    assert not pliant.is_compiling()


def test_marks_on_tensors():
    from pliant.dispatch.dynamic_policy import DynamicPolicy
    from pliant.guards.sources import ArgSource

    t, source = torch.zeros(4, 5, 6), ArgSource(0, "t")
    pliant.mark_dynamic(t, 0, min=2, max=9)
    pliant.maybe_mark_dynamic(t, [1])
    pliant.mark_static(t, -1)
    assert DynamicPolicy().tensor_dims(source, t) == (("marked", 2, 9), "dynamic", "static")
    with pytest.raises(ConfigError, match="dimension 3"):
        pliant.mark_dynamic(t, 3)
    with pytest.raises(ConfigError):
        pliant.mark_dynamic(3, 0)


def test_unknown_stance():
    with pytest.raises(ConfigError, match="force_eager"):
        pliant.set_stance("fast")


def test_statistics():
    pliant.reset()
    compiled(lambda x: x + 1)(X)
    found = pliant.stats()
    assert found["graphs"] == 1 and found["seconds"]["capture"] > 0


def test_configuration_is_guarded():
    f = compiled(lambda x: x + 1)
    f(X)
    with pliant.config.patch(fuse=False):
        f(X)
    f(X)
    assert len(dispatcher_of(f).entries) == 2


def test_a_wrapper_replaced_by_another_is_seen():
    box = {"inner": pliant.compile(torch.nn.ReLU(), backend="eager")}
    f = compiled(lambda x: box["inner"](x))
    assert torch.equal(f(-X), torch.relu(-X))
    other = torch.nn.ReLU()
    other.forward = lambda x: x + 1
    box["inner"] = pliant.compile(other, backend="eager")
    assert torch.equal(f(-X), -X + 1)


@pytest.mark.parametrize("stance", ["force_eager", "eager_on_recompile", "fail_on_recompile"])
def test_stances(stance):
    seen = []

    def f(x):
        seen.append(pliant.is_compiling())
        return x + 1

    f = compiled(f, dynamic=False)
    f(X)
    graphs = len(dispatcher_of(f).entries)
    with pliant.set_stance(stance):
        if stance == "fail_on_recompile":
            with pytest.raises(RecompileError):
                f(torch.ones(X.numel() + 1))
        else:
            assert torch.equal(f(torch.ones(X.numel() + 1)), torch.ones(X.numel() + 1) + 1)
    assert len(dispatcher_of(f).entries) == graphs

    @pliant.set_stance(stance)
    def under(x):
        return f(x)

    assert torch.equal(under(X), X + 1)


def test_the_stance_of_a_process_holds_while_nothing_else_is_said():
    f = compiled(lambda x: x + 1)
    f(X)
    pliant.config.update(stance="force_eager")
    try:
        events.reset()
        assert torch.equal(f(X.double()), X.double() + 1) and not events.stats()["graphs"]
        with pliant.set_stance("default"):
            f(X.double())
        assert events.stats()["graphs"] == 1
    finally:
        pliant.config.update(stance="default")


def test_compilation_that_is_disabled_gives_back_what_it_got():
    model = torch.nn.Linear(2, 2)
    assert pliant.compile(model, disable=True) is pliant.compile(disable=True)(model) is pliant.compile_(model, disable=True) is model
    assert model._compiled_call_impl is None
    with pytest.raises(ConfigError, match="unknown option"):
        pliant.compile(model, disable=True, options={"fusee": False})


@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_a_first_eager_call_tells_which_sizes_change(stance):
    f = compiled(lambda x, scale: x * scale)
    with pliant.set_stance(stance):
        for size in (3, 4, 5):
            x = torch.arange(float(size))
            assert torch.equal(f(x, size), x * size)
            assert len(dispatcher_of(f).entries) == (size > 3), "one compilation serves all sizes but the first"


def test_compile_in_place_and_decorators():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    x = torch.ones(1, 2)
    want = model(x)
    assert pliant.compile_(model, backend="eager") is model
    events.reset()
    torch.testing.assert_close(model(x), want)
    assert events.stats()["graphs"] == 1

    @pliant.compile
    def plain(x):
        return x + 1

    @pliant.compile(backend="eager", dynamic=True)
    def with_arguments(x):
        return x + 1

    class Owner:
        @pliant.compile(backend="eager")
        def method(self, x):
            return x + 1

    for one in (plain, with_arguments, Owner().method):
        assert torch.equal(one(X), X + 1)


@pytest.mark.parametrize("member", [staticmethod, classmethod])
def test_decorated_members_of_a_class_are_what_they_were(member):
    def plus(*args):
        return args[-1] + 1

    class Owner:
        above = pliant.compile(member(plus))
        below = member(pliant.compile(plus))

    for owner in (Owner, Owner()):
        assert torch.equal(owner.above(X), X + 1) and torch.equal(owner.below(X), X + 1)
    assert type(vars(Owner)["above"]) is member
    with pytest.raises(ConfigError, match="pliant.compile below property"):
        pliant.compile(property(plus))


REQUESTS = {
    "stats": lambda x: pliant.stats()["graphs"],
    "reset": lambda x: pliant.reset(),
    "compile": lambda x: pliant.compile(torch.sin)(x),
    "decorator": lambda x: pliant.compile(dynamic=True)(torch.sin)(x),
    "mark_dynamic": lambda x: pliant.mark_dynamic(x, 0),
    "cost": lambda x: pliant.cost(torch.sin, x),
}


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
def test_what_a_compiled_function_asks_of_the_compiler_is_one_break(request_of):
    def f(x):
        y = x * 2
        request_of(x)
        return y + 1

    pliant.reset()
    fallbacks = []
    compiled = pliant.compile(f)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
        fallbacks.append(pliant.stats()["fallbacks"])
    assert not any(fallbacks)
    assert set(pliant.stats()["break_reasons"]) <= {"user-request"}
