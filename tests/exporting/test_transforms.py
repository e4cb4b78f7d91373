"""Passes over exported programs: what they leave computes what the model does, and what does not hold is refused."""

import pytest
import torch
from torch import nn

import pliant
from exporting.test_models import bert
from pliant.errors import ConfigError, ExportError
from pliant.exporting.core_operators import is_core
from pliant.exporting.decompositions import RULES

batch = pliant.Dim("batch")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4), nn.GELU())
        self.register_buffer("calls", torch.zeros(()))
        self.scale = torch.full((4,), 2.0)

    def forward(self, x):
        self.calls += 1
        k = torch.arange(4.0) + self.scale * 3
        return {"y": self.body(x) * k, "rows": x.shape[0], "k": k, "x": x}


def program():
    return pliant.export(Model(), (torch.randn(5, 8),), dynamic_shapes=({0: batch},))


def check(found, model, calls=1):
    """The program does what the model does, at other sizes."""
    for size in (1, 3, 7):
        x = torch.randn(size, 8)
        wanted, got = model(x), found(x)
        assert got["rows"] == size and got["x"] is x
        torch.testing.assert_close(got["y"], wanted["y"].detach())
        torch.testing.assert_close(got["k"], wanted["k"])


@pytest.mark.parametrize("passes", [["dead_code"], ["common_subexpressions"], ["fold_constants"], ["decompose"],
                                    ["common_subexpressions", "fold_constants", "decompose", "dead_code"]])  # fmt: skip
def test_built_in_passes_change_no_result(passes, tmp_path):
    before = program()
    text = str(before)
    after = before.transform(*passes)
    assert str(before) == text, "the program itself stays"
    check(after, Model())
    assert after.state["calls"] == 3 and before.state["calls"] == 0
    after.save(tmp_path / "file")
    check(pliant.load(tmp_path / "file"), Model())
    check(after.compile(), Model())


def test_constants_are_computed_once_and_callers_do_not_get_them():
    folded = program().transform("fold_constants")
    assert "aten.arange.default" not in folded.operators() and "Model_scale" not in folded.state
    found = folded(torch.ones(2, 8))["k"]
    found.zero_()
    check(folded, Model())


def test_unused_work_goes():
    def fn(x):
        x.sin()
        return x.cos() + x.cos()

    # What exporting leaves is clean; a pass that adds the like is cleaned up behind.
    def twice(one):
        (cos,) = (n for n in one.graph.nodes if "cos" in n.name)
        with one.graph.inserting_after(cos):
            again = one.graph.call_function(torch.ops.aten.cos.default, cos.args)
            one.graph.call_function(torch.ops.aten.exp.default, cos.args)
        next(iter(cos.users)).update_arg(1, again)

    found = pliant.export(fn, (torch.randn(3),)).transform(twice)
    assert found.operators() == {"aten.cos.default": 2, "aten.exp.default": 1, "aten.add.Tensor": 1}
    cleaned = found.transform("common_subexpressions", "dead_code")
    assert cleaned.operators() == {"aten.cos.default": 1, "aten.add.Tensor": 1}
    x = torch.randn(3)
    torch.testing.assert_close(cleaned(x), fn(x))


def test_a_pass_of_ones_own_adds_a_constant():
    def doubled(one):
        mul = next(n for n in one.graph.nodes if n.name == "mul")
        two = one.constant("factor", torch.tensor(2.0))
        with one.graph.inserting_after(mul):
            more = one.graph.call_function(torch.ops.aten.mul.Tensor, (mul, two))
        mul.replace_all_uses_with(more, lambda user: user is not more)

    model = nn.Linear(4, 4)
    found = pliant.export(lambda x: model(x) * 3, (torch.randn(2, 4),), dynamic_shapes=({0: batch},)).transform(doubled)
    x = torch.randn(5, 4)
    torch.testing.assert_close(found(x), model(x).detach() * 6)
    assert "c_factor: f32[], constant factor" in str(found)


def other_shape(one):
    node = next(n for n in one.graph.nodes if n.name == "add")
    node.target, node.args = torch.ops.aten.sum.default, node.args[:1]


def other_dtype(one):
    node = next(n for n in one.graph.nodes if n.name == "add")
    node.target, node.args = torch.ops.aten.gt.Scalar, (node.args[0], 0)


def fixed_size(one):
    node = next(n for n in one.graph.nodes if n.name == "add")
    node.target, node.args = torch.ops.aten.view.default, (node.args[0], [5, 4])


def in_place(one):
    next(n for n in one.graph.nodes if n.name == "add").target = torch.ops.aten.add_.Tensor


def missing_result(one):
    output = next(iter(one.graph.find_nodes(op="output")))
    output.args = (output.args[0][1:],)


def more_inputs(one):
    with one.graph.inserting_before(next(iter(one.graph.nodes))):
        one.graph.placeholder("more")


def before_its_argument(one):
    first, second = (n for n in one.graph.nodes if n.op == "call_function")
    first.prepend(second)


@pytest.mark.parametrize(
    ("broken", "why"),
    [(other_shape, "result 0 is"), (other_dtype, "result 0 is torch.bool"), (fixed_size, "5"), (in_place, "add_"),
     (missing_result, "results"), (more_inputs, "inputs"), (before_its_argument, "exp")],
)  # fmt: skip
def test_a_pass_that_leaves_another_program_is_refused(broken, why):
    one = pliant.export(lambda x: (x.exp() + 1, x.shape[0]), (torch.randn(5, 4),), dynamic_shapes=({0: batch},))
    with pytest.raises(ExportError, match=f"the pass `{broken.__name__}`") as error:
        one.transform(broken)
    assert why in str(error.value)
    x = torch.randn(3, 4)
    torch.testing.assert_close(one(x)[0], x.exp() + 1)


def test_unknown_names_are_told():
    with pytest.raises(ConfigError, match="no pass `faster`"):
        program().transform("faster")
    with pytest.raises(ConfigError, match=r"no decomposition of `aten.sin`"):
        program().decompose("aten.sin")


def hidden():
    """A mask whose first row hides every key."""
    return torch.ones(6, 6).tril(-1) > 0


CASES = {
    "t": (lambda x: x.t(), [(3, 4)]), "transpose": (lambda x: x.transpose(-1, 0) * 2, [(2, 3, 4)]),
    "split": (lambda x: [y + 1 for y in x.split(3, 1)], [(2, 8)]), "silu": (nn.functional.silu, [(3, 5)]),
    "new_ones": (lambda x: x.new_ones(x.shape[0]) + x.new_zeros((2, 1)), [(3, 5)]),
    "filled": (lambda x: torch.zeros_like(x) + torch.ones_like(x) + x.new_ones(5) + torch.zeros(5) + torch.ones(5) + torch.arange(5), [(3, 5)]),
    "stack": (lambda x, y: torch.stack([x, y], -1), [(3, 5)] * 2), "unbind": (lambda x: [y + 1 for y in x.unbind(1)], [(2, 3, 4)]),
    "masked_fill": (lambda x: x.masked_fill(x > 0, 2.0), [(3, 5)]), "addcmul": (lambda x: torch.addcmul(x, x, x, value=3), [(3, 5)]),
    "gelu": (nn.functional.gelu, [(3, 5)]), "gelu_tanh": (lambda x: nn.functional.gelu(x, approximate="tanh"), [(3, 5)]),
    "hardswish": (nn.functional.hardswish, [(3, 5)]), "hardsigmoid": (nn.functional.hardsigmoid, [(3, 5)]),
    "addmm": (lambda a, b, c: torch.addmm(a, b, c, beta=2, alpha=3), [(5,), (3, 4), (4, 5)]),
    "layer_norm": (lambda x: nn.functional.layer_norm(x, x.shape[1:]), [(3, 4, 5)]),
    "batch_norm": (nn.BatchNorm2d(4).eval(), [(2, 4, 3, 3)]), "softmax": (lambda x: x.softmax(1), [(2, 4, 3)]),
    "log_softmax": (lambda x: x.log_softmax(0), [(2, 4)]), "matmul": (torch.matmul, [(2, 3, 4), (4, 5)]),
    "attention": (nn.functional.scaled_dot_product_attention, [(2, 3, 6, 4)] * 3),
    "attention_all_masked": (lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=hidden()), [(2, 3, 6, 4)] * 3),
    "attention_causal": (lambda q, k: nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True), [(2, 3, 6, 4), (2, 3, 7, 4)]),
}  # fmt: skip


@pytest.mark.spread(2, "name", "dtype")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_rule_computes_the_same(name, dtype):
    fn, sizes = CASES[name]
    fn = fn.to(dtype) if isinstance(fn, nn.Module) else fn
    args = [torch.randn(size, dtype=dtype) for size in sizes]
    one = pliant.export(fn, tuple(args))
    found = one.decompose(*map(str, RULES))
    left = {str(target) for target in RULES} & found.operators().keys()
    assert dtype is torch.bfloat16 or not left
    for a, b in zip(*(torch.utils._pytree.tree_leaves(f(*args)) for f in (found, fn)), strict=True):
        torch.testing.assert_close(a, b.detach())


def test_what_lies_otherwise_stays():
    def fn(x):
        return x.t().masked_fill(x.t() > 0, 2.0), torch.zeros_like(x.t())

    found = pliant.export(fn, (torch.randn(3, 5),)).decompose()
    assert {"aten.masked_fill.Scalar", "aten.zeros_like.default"} <= found.operators().keys()
    x = torch.randn(3, 5)
    assert [one.stride() for one in found(x)] == [one.stride() for one in fn(x)]


def test_a_network_in_core_operators():
    model = bert()
    one = pliant.export(model, (), {"input_ids": torch.randint(1, 64, (2, 12))}, dynamic_shapes={"input_ids": {0: pliant.Dim("b"), 1: pliant.Dim("n")}})
    core = one.decompose()
    assert not [name for name in core.operators() if not is_core(_operator(name))]
    ids = torch.randint(1, 64, (3, 7))
    torch.testing.assert_close(core(input_ids=ids).logits, model(ids).logits.detach())


def _operator(name):
    _, packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def test_difference():
    one = program()
    assert one.diff(program()) == ""
    found = one.diff(one.decompose("aten.gelu"))
    assert "- " in found and any(line.startswith("- ") and "aten.gelu" in line for line in found.splitlines())
    assert any(line.startswith("+ ") and "aten.erf" in line for line in found.splitlines())
    assert "native_layer_norm.default(" not in "".join(line for line in found.splitlines() if line[0] in "+-")


def test_an_argument_that_moved_is_a_difference():
    one = pliant.export(lambda x, y: x.exp() - y.exp(), (torch.ones(2), torch.ones(2)))
    other = pliant.export(lambda x, y: y.exp() - x.exp(), (torch.ones(2), torch.ones(2)))
    swapped = one.transform(lambda p: [setattr(n, "args", n.args[::-1]) for n in p.graph.nodes if n.name == "sub"])
    assert one.diff(swapped) and one.diff(other)


def test_cost_is_a_formula():
    cost = program().cost()
    for size in (2, 9):
        assert cost.evaluate(batch=size)["flops"] == 2 * size * 8 * 4
    assert "batch" in str(cost) and cost.evaluate(batch=9)["read"] > cost.evaluate(batch=2)["read"]


def test_unflattened_modules_have_the_models_names():
    model, one = Model(), program()
    module = one.unflatten()
    assert module.state_dict().keys() == model.state_dict().keys()
    assert isinstance(module.body.get_submodule("0"), nn.Module)
    check(module, Model())
    assert module.calls == 3 and one.state["calls"] == 0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    module.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)
    check(module, model)
