"""Forward and backward together are the joint graph; what is saved is little."""

import dataclasses

import pytest
import torch
from tests.autograd.programs import captured, cloned, of_module
from torch import nn

import pliant
from pliant import config
from pliant.autograd import runtime
from pliant.autograd.joint import trace_joint
from pliant.autograd.partition.split import partition
from pliant.graph.contracts import AtenGraph
from pliant.graph.interpret import interpret
from pliant.graph.passes.purity import memory_root
from pliant.targets import registry


def leaf(*size):
    return torch.randn(*size, requires_grad=True)


def split(function, inputs):
    return partition(trace_joint(captured(function, inputs)))


def names(aten):
    return [n.target._schema.name.split("::")[1] for n in aten.graph.nodes if hasattr(n.target, "_schema")]


def saved_bytes(parts):
    output = next(iter(parts.forward.graph.find_nodes(op="output"))).args[0]
    values = [output[s.position].meta["val"] for s in parts.saved if not s.is_input]
    return sum(v.numel() * v.dtype.itemsize for v in values)


def eager_saved_bytes(function, inputs):
    known = {v.untyped_storage().data_ptr() for v in inputs}
    sizes = {}

    def pack(t):
        pointer = t.untyped_storage().data_ptr()
        if pointer not in known:
            sizes[pointer] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        kept = function(*inputs)
    del kept
    return sum(sizes.values())


def transformer_layer():
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), torch.randn(2, 5, 8)


MODULES = [
    lambda: (nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)), torch.randn(5, 4)),
    lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), torch.randn(2, 3, 8, 8)),
    lambda: (nn.Sequential(nn.LayerNorm(6), nn.SiLU(), nn.Linear(6, 5), nn.Softmax(-1)), torch.randn(3, 6)),
    transformer_layer,
]


@pytest.mark.parametrize("make", MODULES)
def test_parts_equal_the_joint_graph(make):
    module, x = make()
    function, state = of_module(module)
    inputs = [*state, x]
    program = captured(function, inputs)
    whole, parts = trace_joint(program), split(function, inputs)
    joint_inputs, part_inputs = cloned(inputs), cloned(inputs)
    tangents = [torch.randn(n.meta["val"].shape) for n in whole.tangents]
    expected = interpret(AtenGraph(whole.graph, program.shape_env), [*joint_inputs, *tangents])
    forward = interpret(parts.forward, part_inputs)
    saved = [(part_inputs if s.is_input else forward)[s.position] for s in parts.saved]
    backward = interpret(parts.backward, [*[forward[i] for i in parts.symbols], *saved, *tangents])
    for mine, theirs in zip(forward[: parts.n_results], expected[: parts.n_results]):
        torch.testing.assert_close(mine, theirs)
    for position, mine in zip(parts.wanted, backward):
        torch.testing.assert_close(mine, expected[parts.n_results + position])
    for mine, theirs in zip(part_inputs, joint_inputs):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("make", MODULES)
def test_no_more_is_saved_than_in_eager(make):
    module, x = make()
    function, state = of_module(module)
    assert saved_bytes(split(function, [*state, x])) <= eager_saved_bytes(function, [*state, x])


def classified(x, w, target):
    return (nn.functional.cross_entropy(x @ w, target),)


def test_log_softmax_is_saved_as_two_numbers_a_row():
    parts = split(classified, [leaf(16, 8), leaf(8, 100), torch.randint(0, 100, (16,))])
    assert saved_bytes(parts) == 16 * 100 * 4 + 2 * 16 * 4 + 4  # the product, which is there anyway
    assert "_log_softmax" not in names(parts.forward)


def attended(x, w, bias):
    return ((x @ w + bias).softmax(-1).to(torch.bfloat16).square(),)


def test_softmax_is_saved_as_two_numbers_a_row():
    """Its input is there anyway; eager keeps the float32 result and the cast one."""
    parts = split(attended, [leaf(16, 8), leaf(8, 100), leaf(100)])
    assert saved_bytes(parts) <= 16 * 100 * 4 + 2 * 16 * 4 + 100 * 4
    assert "_softmax" not in names(parts.forward)


def test_kept_memory_may_have_a_price():
    """What an activation gives to a product is written again then, and only its input is kept."""
    there = registry.target_of(torch.device("cpu"))
    inputs = [leaf(32, 8), leaf(8, 64), leaf(64, 8)]
    found = []
    try:
        for share in (0.0, 0.3):
            target = dataclasses.replace(there, function_share=1 / 8, held_share=share)
            registry.provide("cpu", lambda _, target=target: target)
            found.append(saved_bytes(split(lambda x, a, b: (nn.functional.gelu(x @ a) @ b,), inputs)))
    finally:
        registry.provide("cpu", lambda _: there)
    assert found[0] - found[1] == 32 * 64 * 4


def test_logits_that_the_program_returns_may_be_written():
    """Then the result of log-softmax is kept, as in eager."""
    parts = split(lambda x, w, t: ((x @ w).add(0), *classified(x, w, t)), [leaf(16, 8), leaf(8, 100), torch.randint(0, 100, (16,))])  # fmt: skip
    assert saved_bytes(parts) <= 16 * 100 * 4 + 2 * 16 * 4 + 4
    assert not any(s.position == 0 and not s.is_input for s in parts.saved)


NORMS = [
    (norm, layout)
    for norm in (nn.GroupNorm(2, 8), nn.BatchNorm2d(8), nn.LayerNorm((8, 6, 6)))
    for layout in (torch.contiguous_format, torch.channels_last)
    if layout is torch.contiguous_format or not isinstance(norm, nn.LayerNorm)  # which makes a result contiguous
]


@pytest.mark.parametrize(("norm", "memory_format"), NORMS, ids=str)
def test_what_a_norm_gives_is_computed_again(norm, memory_format):
    """SiLU's backward reads it: eager keeps it besides the input."""
    module = nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.SiLU(), nn.Conv2d(8, 2, 1)).to(memory_format=memory_format)
    x = torch.randn(2, 3, 8, 8).to(memory_format=memory_format)
    function, state = of_module(module)
    inputs = [*state, x]
    each = 2 * 8 * 6 * 6 * 4
    assert 2 * each <= saved_bytes(split(function, inputs)) < 2 * each + each // 4
    test_parts_equal_the_joint_graph(lambda: (module, x))
    grads = [
        torch.autograd.grad(one(x).square().sum(), [*module.parameters()]) for one in (module, pliant.compile(module))
    ]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)  # a bias before a norm has a gradient of 0


def test_a_mask_of_dropout_is_saved_as_bools():
    parts = split(lambda x, w: (nn.functional.dropout(x @ w),), [leaf(16, 8), leaf(8, 100)])
    assert saved_bytes(parts) == 16 * 100


def bert():
    from transformers import BertConfig, BertModel

    sizes = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 256}
    return BertModel(BertConfig(vocab_size=100, **sizes), add_pooling_layer=False)


def gpt2():
    from transformers import GPT2Config, GPT2Model

    return GPT2Model(GPT2Config(n_layer=4, n_embd=64, n_head=2, vocab_size=100, n_positions=32, use_cache=False))


@pytest.mark.parametrize(("make", "share"), [(bert, 0.89), (gpt2, 0.57)])
def test_transformers_in_training_save_less_than_in_eager(make, share, monkeypatch):
    """`share`: saved bytes over eager's, four layers with dropout."""
    pytest.importorskip("transformers")
    model, ids = make(), torch.randint(0, 100, (2, 32))
    state = [*model.parameters(), *model.buffers(), ids]
    parts = []
    monkeypatch.setattr(runtime, "partition", lambda joint: parts.append(partition(joint)) or parts[-1])
    with config.patch(stop_after="joint"):
        pliant.compile(model)(input_ids=ids)
    expected = eager_saved_bytes(lambda *_: model(input_ids=ids), state)
    assert sum(map(saved_bytes, parts)) < share * expected


def test_cheap_chain_is_computed_again():
    parts = split(lambda x: ((x.sin() * 2 + 1).relu() * 3,), [leaf(100)])
    assert saved_bytes(parts) == 0
    assert "relu" in names(parts.backward) or "le" in names(parts.backward)


def test_an_input_that_eager_does_not_keep_is_saved_by_value():
    parts = split(lambda x: ((x * 2 + 1).relu() * 3,), [leaf(100)])
    assert saved_bytes(parts) == 400 and not any(s.is_input for s in parts.saved)


def test_product_is_not_computed_again():
    parts = split(lambda x, w: ((x @ w).relu().sum(),), [leaf(8, 8), leaf(8, 8)])
    assert names(parts.forward).count("mm") == 1
    assert names(parts.backward).count("mm") == 2


def test_random_draws_happen_once_and_are_not_merged():
    parts = split(lambda x: (nn.functional.dropout(x) + nn.functional.dropout(x),), [leaf(50)])
    assert names(parts.forward).count("bernoulli") == 2
    assert "bernoulli" not in names(parts.backward)


def test_equal_calls_are_merged():
    parts = split(lambda x: (x.sin() + x.sin(),), [torch.randn(3)])
    assert names(parts.forward) == ["sin", "add"]


def test_calls_without_effect_disappear():
    def f(x):
        x.cos()
        return (x.view(3).detach().to(torch.float32).contiguous() + 1,)

    assert names(split(f, [torch.randn(3)]).forward) == ["add"]


def test_written_input_is_saved_by_value():
    def f(x, w):
        y = x.clone() * w
        x.zero_()
        return (y,)

    parts = split(f, [torch.randn(3), leaf(3)])
    assert not any(s.is_input and s.position == 0 for s in parts.saved)
    assert names(parts.forward) == ["mul", "zero", "clone", "copy_"] or "clone" in names(parts.forward)


def test_nothing_is_saved_for_inference():
    assert split(lambda x: (x.exp(),), [torch.randn(3)]).backward is None


def test_a_value_written_into_saved_memory_is_saved_as_a_view_of_it():
    def gates(x, w):
        y = x @ w
        first, second = y.unsafe_chunk(2, 1)
        first.tan_()
        kept = second.tan_() * first
        return (kept + second,)

    inputs = [leaf(4, 4), leaf(4, 6)]
    parts = split(gates, inputs)
    assert len({s.position for s in parts.saved if not s.is_input}) == 2
    output = next(iter(parts.forward.graph.find_nodes(op="output"))).args[0]
    roots = {memory_root(output[s.position]) for s in parts.saved if not s.is_input}
    assert len(roots) == 1
    test_parts_equal_the_joint_graph(lambda: (_Calls(gates, torch.randn(4, 6)), torch.randn(4, 4)))


class _Calls(nn.Module):
    def __init__(self, function, weight):
        super().__init__()
        self.function, self.weight = function, nn.Parameter(weight)

    def forward(self, x):
        return self.function(x, self.weight)[0]
