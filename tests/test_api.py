"""Arguments of the public functions, marks, statistics."""

import pytest
import torch

import pliant
from pliant.capture.compiled_function import dispatcher_of
from pliant.debug import events
from pliant.errors import ConfigError

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


def test_allow_in_graph():
    @pliant.allow_in_graph
    def opaque(x):
        return x * 2 + 1

    f = compiled(lambda x: opaque(x) - 1)
    assert torch.equal(f(X), X * 2 + 1 - 1)
    assert "opaque" in code_of(f)


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
    from pliant.capture.dynamic_policy import DynamicPolicy
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
