"""Each call or part of one that runs eagerly though compilation was asked for is counted, and an error under `fullgraph`."""

import asyncio
import inspect
import warnings

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import pliant
from pliant import config
from pliant.debug import events
from pliant.errors import GraphBreakError

X = torch.linspace(-1, 1, 6).view(2, 3)


class Wrapper(torch.Tensor):
    """A tensor that holds another one, on which its operators run."""

    @staticmethod
    def __new__(cls, data):
        made = torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=data.dtype)
        made.inner = data
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        result = func(*(a.inner if isinstance(a, cls) else a for a in args), **(kwargs or {}))
        return cls(result) if isinstance(result, torch.Tensor) else result


def masked():
    from torch.masked import masked_tensor

    return masked_tensor(X, X > 0)


TENSORS = {
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged),
    "coo": lambda: X.to_sparse(),
    "csr": lambda: X.to_sparse_csr(),
    "csc": lambda: X.to_sparse_csc(),
    "bsr": lambda: torch.ones(2, 2).to_sparse_bsr((1, 1)),
    "bsc": lambda: torch.ones(2, 2).to_sparse_bsc((1, 1)),
    "mkldnn": lambda: X.to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
    "per channel": lambda: torch.quantize_per_channel(
        X, torch.ones(2), torch.zeros(2, dtype=torch.int), 0, torch.qint8
    ),
    "wrapper": lambda: Wrapper(X),
    "parameter of a wrapper": lambda: nn.Parameter(Wrapper(X)),
    "masked": masked,
    "conjugate": lambda: torch.ones(2, dtype=torch.complex64).conj(),
    "negative": lambda: torch.ones(2, dtype=torch.complex64).conj().imag,
    "meta": lambda: torch.ones(2, device="meta"),
    "subclass": lambda: X.as_subclass(type("Plain", (torch.Tensor,), {})),
    "parameter": lambda: nn.Parameter(X.clone()),
    "complex": lambda: X.to(torch.complex64),
}


class Holder(nn.Module):
    def __init__(self, tensor):
        super().__init__()
        self.tensor = tensor

    def forward(self):
        return used(self.tensor)


def used(tensor):
    return tensor.dequantize() if tensor.is_quantized else tensor * 2


WAYS = {
    "argument": lambda tensor: (used, (tensor,)),
    "keyword": lambda tensor: (lambda *, a=tensor: used(a), ()),
    "in a list": lambda tensor: (lambda tensors: used(tensors[0]), ([tensor],)),
    "closure": lambda tensor: (lambda: used(tensor), ()),
    "attribute": lambda tensor: (Holder(tensor), ()),
}


def seen_by(function, args, fullgraph=False):
    """What the statistics say of two calls."""
    compiled = pliant.compile(function, backend="eager", fullgraph=fullgraph)
    pliant.reset()
    compiled(*args)
    compiled(*args)
    return pliant.stats()


def is_whole(stats):
    return stats["graphs"] > 0 and not stats["graph_breaks"] and not stats["fallbacks"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", TENSORS)
def test_kinds_of_tensors(kind, way):
    function, args = WAYS[way](TENSORS[kind]())
    stats = seen_by(function, args)
    assert is_whole(stats) or stats["graph_breaks"] or stats["fallbacks"] == 2, stats
    if is_whole(stats):
        assert is_whole(seen_by(function, args, fullgraph=True))
    else:
        with pytest.raises(GraphBreakError):
            seen_by(function, args, fullgraph=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("kind", TENSORS)
def test_kinds_of_tensors_where_dense_ones_have_code(kind, kept):
    """What is not served is explained, remembered and run whatever it is."""

    def doubled(tensor):
        return used(tensor)

    pliant.reset()
    with config.patch(keep_entries=kept), events.collect("recompile"):
        for compiled in [pliant.compile(doubled) for _ in range(1 + kept)]:
            for _ in range(2):
                compiled(TENSORS[kind]())
            compiled(torch.ones(3))
    stats = pliant.stats()
    assert stats["graphs"] > 1 or stats["fallbacks"] >= 2, stats
    pliant.reset()


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "on disk"])
def test_a_parameter_that_is_not_made_yet_is_eagers_error(kept):
    def doubled(tensor):
        return used(tensor)

    with config.patch(keep_entries=kept):
        pliant.reset()
        pliant.compile(doubled)(torch.ones(3))
        for compiled in [pliant.compile(doubled) for _ in range(2)]:
            with pytest.raises(ValueError, match="uninitialized parameter"):
                compiled(nn.parameter.UninitializedParameter())
    assert pliant.stats()["fallbacks"] == 2


# ---- code around the call


class Doubles(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return (
            func(*args, **(kwargs or {})) * 2 if func is torch.ops.aten.relu.default else func(*args, **(kwargs or {}))
        )


class Logs(TorchFunctionMode):
    """Remembers what it sees."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class AnswersAll(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return torch.ones(())


def within(make):
    def call(function, x):
        with make():
            return function(x)

    return call


def forward_mode(function, x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, torch.ones_like(x)))).tangent


def traced_by_script(function, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(function, (x + 1,), check_trace=False)(x)


def traced_by_fx(function, x):
    return torch.fx.symbolic_trace(function)(x)


def logged(function, x):
    with Logs() as logs:
        function(x)
    return torch.tensor(len(logs.seen))


AROUND = {
    "dispatch mode": within(Doubles),
    "function mode": logged,
    "function mode that answers all": within(AnswersAll),
    "vmap": lambda function, x: torch.func.vmap(function)(x),
    "grad": lambda function, x: torch.func.grad(lambda x: function(x).sum())(x),
    "jvp": lambda function, x: torch.func.jvp(function, (x,), (x,))[1],
    "forward mode": forward_mode,
}
TRACERS = {"torch.jit.trace": traced_by_script, "torch.fx": traced_by_fx}


def program(x):
    return torch.relu(x) * 2 + 1


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("around", {**AROUND, **TRACERS})
def test_code_around_the_call_sees_all_that_runs(around, warm):
    call = {**AROUND, **TRACERS}[around]
    for fullgraph in (False, True):
        compiled = pliant.compile(program, fullgraph=fullgraph)
        if warm:
            torch.testing.assert_close(compiled(X), program(X))
        events.reset()
        if fullgraph and around in AROUND:
            with pytest.raises(GraphBreakError, match="observed-call"):
                call(compiled, X)
        else:
            torch.testing.assert_close(call(compiled, X), call(program, X))
            assert pliant.stats()["fallbacks"] >= 1 and pliant.stats()["graphs"] == 0
        torch.testing.assert_close(compiled(X), program(X))


@pytest.mark.parametrize("trace", TRACERS)
def test_a_traced_module_with_compiled_parts(trace):
    part = nn.Linear(3, 3)
    model = nn.Sequential(pliant.compile(part), nn.ReLU())
    for _ in range(2):  # cold, warm
        traced = (lambda m: torch.jit.trace(m, (X,))) if trace == "torch.jit.trace" else torch.fx.symbolic_trace
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = traced(model)
        torch.testing.assert_close(found(X * 3), torch.relu(part(X * 3)))
        model(X)


def test_a_mode_around_backward_sees_its_operators():
    class Sees(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = set()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.add(func)
            return func(*args, **(kwargs or {}))

    compiled = pliant.compile(lambda x: torch.sin(x * 2).sum())
    for _ in range(2):
        x = X.clone().requires_grad_()
        y = compiled(x)
        events.reset()
        with Sees() as mode:
            y.backward()
        torch.testing.assert_close(x.grad, torch.cos(X * 2) * 2)
        assert torch.ops.aten.cos.default in mode.seen
        assert pliant.stats()["fallbacks"] == 1


def test_a_function_mode_around_backward_sees_as_little_as_in_eager():
    seen = []
    for function in (lambda x: torch.sin(x * 2).sum(), pliant.compile(lambda x: torch.sin(x * 2).sum())):
        x = X.clone().requires_grad_()
        y = function(x)
        with Logs() as logs:
            y.backward()
        torch.testing.assert_close(x.grad, torch.cos(X * 2) * 2)
        seen.append(logs.seen)
    assert seen[0] == seen[1]


# ---- functions whose code runs later


async def coroutine(x):
    return x * 2


def generator(x):
    yield x * 2


async def asynchronous_generator(x):
    yield x * 2


def expression(x):
    return [(x * i for i in range(2)), x + 1]


def mapped(x):
    return map(torch.relu, [x])


def finished(x):
    made = (x * i for i in range(2))
    return list(made), made


def awaited(value):
    return asyncio.run(value) if inspect.iscoroutine(value) else value


@pytest.mark.parametrize("function", [coroutine, generator, asynchronous_generator, expression, mapped])
def test_code_that_runs_after_the_call(function):
    pliant.reset()
    awaited(pliant.compile(function)(X))
    assert pliant.stats()["fallbacks"] == 1
    with pytest.raises(GraphBreakError, match="runs-later|coroutine"):
        pliant.compile(function, fullgraph=True)(X)


def test_a_generator_that_has_run_is_no_fallback():
    pliant.reset()
    pliant.compile(finished, fullgraph=True)(X)
    assert pliant.stats()["fallbacks"] == 0


# ---- calls that nothing serves any more


def test_each_call_past_a_limit_is_counted():
    compiled = pliant.compile(lambda x, flag: x * len(flag))
    pliant.reset()
    with pliant.config.patch(recompile_limit=2), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for flag in "a bb ccc dddd eeeee".split():
            compiled(X, flag)
    assert (pliant.stats()["graphs"], pliant.stats()["fallbacks"]) == (2, 3)


def test_each_call_of_what_was_given_up_is_counted():
    compiled = pliant.compile(used)
    pliant.reset()
    for _ in range(12):
        compiled(X.to_sparse())
    assert pliant.stats()["fallbacks"] == 12
    assert sum(count for why, count in pliant.stats()["fallback_reasons"].items() if "could not be captured 8 times" in why) == 4


def test_eager_that_was_asked_for_is_no_fallback():
    compiled = pliant.compile(program)
    pliant.reset()
    with pliant.set_stance("force_eager"):
        compiled(X)
    compiled(X)
    with pliant.set_stance("eager_on_recompile"):
        compiled(X.double())
    assert pliant.stats()["fallbacks"] == 0
