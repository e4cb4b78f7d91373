"""`pliant.export`: the program, its signature, its calls, its text, its errors."""

import copy
import dataclasses
import logging
import random
import threading

import numpy as np
import pytest
import torch
from torch import nn

import pliant
from pliant.capture.outside.world import World
from pliant.errors import ConfigError, ConstraintError, ExportError, GraphBreakError
from pliant.exporting import assemble
from pliant.exporting.program import BUFFER, CONSTANT, PARAMETER, USER

batch = pliant.Dim("batch")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = nn.Linear(4, 8), nn.BatchNorm1d(8)
        self.scale = torch.full((3,), 2.0)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("sums", torch.zeros(2))

    def forward(self, x, rest, flag=True):
        self.calls.add_(1)
        self.sums = self.sums * 2 + 1
        y = self.norm(self.linear(x))
        found = {"y": y, "x": x, "view": x.view(-1), "size": x.shape[0], "sum": y.sum(0), "none": None}
        return found, [rest["a"] * self.scale if flag else rest["a"], self.linear.weight.t()]


def arguments(size=5):
    return torch.randn(size, 4, generator=torch.Generator().manual_seed(size)), {"a": torch.arange(3.0)}


@pytest.fixture(scope="module")
def exported():
    return pliant.export(Model(), arguments(), dynamic_shapes={"x": {0: batch}})


def test_every_input_is_known_by_what_it_is(exported):
    found = [(one.kind, one.target, one.mutated) for one in exported.inputs]
    assert found == [
        (PARAMETER, "linear.weight", False), (PARAMETER, "linear.bias", False), (PARAMETER, "norm.weight", False),
        (PARAMETER, "norm.bias", False), (BUFFER, "calls", True), (BUFFER, "sums", True),
        (BUFFER, "norm.num_batches_tracked", True), (BUFFER, "norm.running_mean", True), (BUFFER, "norm.running_var", True),
        (CONSTANT, "Model_scale", False), (USER, "x", False), (USER, "rest['a']", False),
    ]  # fmt: skip
    assert [node.name for node in exported.placeholders] == [one.name for one in exported.inputs]
    assert exported.state_dict().keys() == Model().state_dict().keys()


def test_the_graph_is_functional_aten(exported):
    for node in exported.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            assert node.target.namespace == "aten" and not node.target._schema.is_mutable


@pytest.mark.parametrize("how", ["operators", "compiled", "pliant.compile"])
def test_calls_do_what_the_model_does(how):
    model = Model()
    program = pliant.export(model, arguments(), dynamic_shapes={"x": {0: batch}})
    call = {"operators": program, "compiled": program.compile(), "pliant.compile": pliant.compile(program)}[how]
    assert float(model.calls) == 0, "the model itself is not run"
    for size in (5, 2, 9):
        x, rest = arguments(size)
        with torch.no_grad():
            (wanted, (scaled, weight)), (found, others) = model(x, rest), call(x, rest)
        assert found.keys() == wanted.keys() and found["size"] == size and found["none"] is None
        for a, b in [(found["y"], wanted["y"]), (found["sum"], wanted["sum"]), (others[0], scaled), (others[1], weight)]:
            torch.testing.assert_close(a, b)
        assert found["x"] is x and found["view"].data_ptr() == x.data_ptr()
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(program.state[name], tensor)


def test_arguments_by_name_or_position(exported):
    x, rest = arguments()
    wanted = exported(x, rest)[0]["view"]
    assert torch.equal(exported(x=x, rest=rest)[0]["view"], wanted)
    assert torch.equal(exported(x, rest=rest)[0]["view"], wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, rest: (x[:, :3], rest), "x.size(1) is 3, not 4"),
        (lambda x, rest: (x.double(), {"a": torch.ones(4)}), "x has the dtype torch.float64, not torch.float32"),
        (lambda x, rest: (x[:1], rest), "batch >= 2 does not hold: batch is 1"),
        (lambda x, rest: (3, rest), "x is a int, not a tensor"),
        (lambda x, rest: (x,), "it was exported with (*, {'a': *})"),
        (lambda x, rest: (x, rest, False), "and is called with (*, {'a': *}, *)"),
    ],
)
def test_wrong_arguments_are_told(exported, change, message):
    with pytest.raises(ConstraintError) as caught:
        exported(*change(*arguments()))
    assert message in str(caught.value)


def test_everything_that_is_wrong_is_told_at_once():
    program = pliant.export(lambda x, y, k: x + y, (torch.ones(2, 3), torch.ones(3), 5))
    with pytest.raises(ConstraintError) as caught:
        program(torch.ones(2, 4), torch.ones(2), 6)
    for text in ("x.size(1) is 4, not 3", "y.size(0) is 2, not 3", "argument 2 is 6, and was 5 at export"):
        assert text in str(caught.value)


def test_other_layouts_are_copied_and_written_back():
    def step(x):
        x.mul_(2)
        return x.sum(0)

    program = pliant.export(step, (torch.ones(4, 3),), dynamic_shapes=({0: batch},))
    assert [one.mutated for one in program.inputs] == [True]
    for call in (program, program.compile()):
        x = torch.arange(12.0).view(3, 4).t()
        wanted = x.clone() * 2
        assert torch.equal(call(x), wanted.sum(0)) and torch.equal(x, wanted)


def test_the_text_is_python_that_runs(exported):
    scope = {"torch": torch}
    exec(str(exported), scope)
    x, rest = arguments(6)
    fresh = copy.deepcopy({name: tensor.clone() for name, tensor in exported.state.items()})
    given = [x if one.target == "x" else rest["a"] if one.kind == USER else fresh[one.target] for one in exported.inputs]
    with torch.no_grad():
        results = scope["forward"](*given)
    wanted = exported(x, rest)
    assert torch.equal(results[exported.outputs[0].position], wanted[0]["y"])
    assert torch.equal(results[-1], exported.state["norm.running_var"])


def test_the_text_of_a_small_program():
    program = pliant.export(lambda x: x.relu()[1:], (torch.ones(4),), dynamic_shapes=({0: pliant.Dim("n", max=9)},))
    lines = [line.split("    test_export")[0] for line in str(program).splitlines()]
    assert lines == [
        "# lambda: exported by Pliant",
        "# where n >= 1",
        "# where n <= 9",
        "aten = torch.ops.aten",
        "",
        "",
        "def forward(x):",
        "    # x: f32[n], argument x",
        "    n = x.size(0)",
        "    relu = aten.relu.default(x)  # f32[n]",
        "    slice_1 = aten.slice.Tensor(relu, 0, 1, 9223372036854775807)  # f32[n - 1]",
        "    return (slice_1,)",
        "# result 0: slice_1",
    ]


def test_a_break_is_the_error_of_fullgraph():
    def branch(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(GraphBreakError) as by_export:
        pliant.export(branch, (torch.ones(3),))
    with pytest.raises(GraphBreakError) as by_compile:
        pliant.compile(branch, fullgraph=True)(torch.ones(3))
    assert (by_export.value.kind, by_export.value.do) == (by_compile.value.kind, by_compile.value.do)
    assert "if x.sum() > 0:" in str(by_export.value)


class Counts(nn.Module):
    number = 0

    def forward(self, x):
        self.number += 1
        return x


class Replaces(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x):
        self.last = torch.cat([self.last, x])
        return x


class Freezes(nn.Linear):
    def forward(self, x):
        self.requires_grad_(False)
        return super().forward(x)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Freezes(3, 3), "the model calls `TensorBase.requires_grad_` for its effect"),
        (Counts(), "the model changes `Counts.__dict__` (`number`)"),
        (Replaces(), "the model gives its buffer `last` another kind of value"),
        (lambda x: print(x) or x, "the model calls `print` for its effect"),
    ],
)
def test_what_cannot_be_exported_is_told(model, message):
    with pytest.raises(ExportError) as caught:
        pliant.export(model, (torch.ones(3),))
    assert message in str(caught.value)


def test_a_model_that_has_frozen_its_parameters_is_exported():
    model, x = Freezes(3, 3), torch.ones(2, 3)
    expected = model(x)
    torch.testing.assert_close(pliant.export(model, (x,))(x), expected)


def test_messages_of_the_model_are_noted_and_left_out(capsys):
    program = pliant.export(lambda x: print("here") or x * 2, (torch.ones(3),))
    program(torch.ones(3))
    assert program.notes == ("`print` is not called",) and capsys.readouterr().out == ""


def warns(x):
    logging.getLogger("model").warning(f"{x.shape[0]} rows")
    return x * 2


OF_ITSELF: dict[str, object] = {}  # a message is sent from this module, whose names are no part of it
OF_ITSELF["itself"] = OF_ITSELF


def test_messages_that_show_sizes_are_left_out_and_those_that_show_elements_refused():
    program = pliant.export(warns, (torch.ones(3),), dynamic_shapes=({0: batch},))
    assert program.notes == ("`Logger.warning` is not called",) and program(torch.ones(5)).shape == (5,)
    for shown in (lambda x: x, lambda x: f"{x.sum().item()}"):
        with pytest.raises(ExportError, match=r"the model calls `Logger\.warning` for its effect"):
            pliant.export(lambda x, shown=shown: logging.getLogger("model").warning("%s", shown(x)) or x, (torch.ones(3),))


class Memo(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.known, self.lock = {}, threading.Lock()

    def forward(self, x):
        if "bias" not in self.known:
            with self.lock:
                self.known["bias"] = torch.arange(3.0)
        return x + self.known["bias"]


def test_what_only_a_first_call_does_is_done_before():
    model = Memo()
    with pytest.raises(ExportError, match="call the model once before it is exported"):
        pliant.export(model, (torch.ones(3),))
    model(torch.ones(3))
    assert torch.equal(pliant.export(model, (torch.ones(3),))(torch.zeros(3)), torch.arange(3.0))


class Draws(torch.nn.Module):
    """As models that leave out layers at random in training."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, how):
        drawn = random.random()
        match how:
            case "unused":
                return x if self.training and drawn < 0.1 else x + 1
            case "used":
                return x * drawn
            case "returned":
                return x, drawn
            case "a size":
                return x[: random.randint(1, 2)]
            case "seeded":
                random.seed(3)
            case "locked":
                with self.lock:
                    return x + 1
            case "written":
                with self.lock:
                    self.calls += 1
        return x


def test_random_numbers_that_nothing_uses_and_locks_around_reads_are_left_out():
    for how, notes in (("unused", 1), ("locked", 2)):
        program = pliant.export(Draws().eval(), (torch.ones(3), how), dynamic_shapes=({0: batch}, None))
        state = random.getstate()
        assert torch.equal(program(torch.ones(5), how), torch.full((5,), 2.0)) and random.getstate() == state
        assert len(program.notes) == notes and "are not drawn" in program.notes[0]
    for how in ("used", "returned", "a size", "seeded"):
        with pytest.raises(ExportError, match=r"random numbers of Python's(.|\n)*draw them by PyTorch"):
            pliant.export(Draws().eval(), (torch.ones(3), how))
    with pytest.raises(ExportError, match="the model uses a lock"):
        pliant.export(Draws().eval(), (torch.ones(3), "written"))


class Penalized(torch.nn.Module):
    def forward(self, x):
        return x.requires_grad_() * 2


def test_arguments_that_are_to_require_gradients_are_refused():
    with pytest.raises(ExportError, match="the model uses requires_grad_"):
        pliant.export(Penalized(), (torch.ones(3),))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"z": None}, "there is no 'z'; there are 'x', 'k'"),
        ({"x": {2: batch}}, "it has 2 dimensions, and no dimension 2"),
        ({"x": (batch,)}, "it is a tensor of 2 dimensions"),
        ({"k": batch}, "it is a int, which is a constant"),
        ({"x": {0: 5}}, "dimension 0 is 4 in the example, not 5"),
        ({"x": {0: pliant.Dim("b", max=3)}}, "b is 4 by x.size(0), outside of Dim('b', max=3)"),
        ({"x": {0: pliant.Dim("b"), 1: pliant.Dim("b")}}, "x.size(1) is 3: b is 4 by x.size(0)"),
        ({"x": {0: 3 * batch}}, "x.size(0) is 4, which is not 3*batch of any batch"),
        ({"x": {0: pliant.Dim("b"), 1: pliant.Dim("b", max=9)}}, "`b` is two different sizes"),
        (7, "it is a int, not a dict by parameter or a tuple by position"),
    ],
)
def test_wrong_sizes_are_told(said, message):
    with pytest.raises(ConstraintError) as caught:
        pliant.export(lambda x, k: x * k, (torch.ones(4, 3), 2), dynamic_shapes=said)
    assert message in str(caught.value)


def test_sizes_beyond_dims_are_checked_fixed_or_refused():
    def program(x, y):
        return x.reshape(y.shape[0], -1)

    said = ({0: batch}, {0: pliant.Dim("n")})
    args = torch.ones(4, 6), torch.ones(8)
    checks = pliant.export(program, args, dynamic_shapes=said)
    assert checks(torch.ones(2, 6), torch.ones(3)).shape == (3, 4)
    with pytest.raises(ConstraintError, match=r"6\*batch % n == 0 does not hold"):
        checks(torch.ones(2, 6), torch.ones(5))
    with pytest.warns(pliant.PliantWarning, match="sizes of an exported program were fixed"):
        fixed = pliant.export(program, args, dynamic_shapes=said, beyond="specialize")
    assert "6*batch % n == 0 is no constraint of a Dim" in fixed.notes[0]
    with pytest.raises(ConstraintError, match=r"x.size\(0\) is 2, not 4"):
        fixed(torch.ones(2, 6), torch.ones(8))
    with pytest.raises(ConstraintError, match="which no Dim says"):
        pliant.export(program, args, dynamic_shapes=said, beyond="refuse")


@pytest.mark.parametrize(
    "call", [lambda: pliant.export(3), lambda: pliant.export(torch.sin, torch.ones(1)), lambda: pliant.export(torch.sin, (), beyond="x")]
)
def test_wrong_calls_of_export(call):
    with pytest.raises(ConfigError):
        call()


def test_dims():
    assert str(2 * batch + 1) == "2*batch + 1" and str(batch - 1) == "batch - 1" and repr(batch) == "Dim('batch')"
    for wrong in (lambda: pliant.Dim("1"), lambda: pliant.Dim("b", min=3, max=3), lambda: batch * 0, lambda: batch + 0.5):
        with pytest.raises(ConstraintError):
            wrong()


def test_calls_that_are_flat_and_others_mean_the_same():
    def fn(x, flag, *, y, scale=2):
        return x * scale + y if flag else x

    x, y = torch.randn(3), torch.randn(3)
    program = pliant.export(fn, (x, True), {"y": y, "scale": 3}, dynamic_shapes={"x": {0: batch}, "y": {0: batch}})
    wanted = fn(x, True, y=y, scale=3)
    for call in (
        lambda: program(x, True, y=y, scale=3), lambda: program(x, True, scale=3, y=y), lambda: program(x, flag=True, scale=3, y=y),
        lambda: program(torch.nn.Parameter(x), True, y=y, scale=3),
    ):  # fmt: skip
        assert torch.equal(call(), wanted)
    for call in (
        lambda: program([x], True, y=y, scale=3), lambda: program(x, True, y={"y": y}, scale=3), lambda: program(x, True, y=y),
        lambda: program(x, True, y=None, scale=3), lambda: program(x, 1, y=y, scale=3),
    ):  # fmt: skip
        with pytest.raises(ConstraintError):
            call()


def test_writes_to_a_part_are_printed_as_operators():
    def fn(x):
        y = x * 2
        y[1:] = 0
        return y

    program = pliant.export(fn, (torch.randn(4, 3),), dynamic_shapes=({0: pliant.Dim("n")},))
    scope = {"torch": torch}
    exec(str(program), scope)
    x = torch.randn(5, 3)
    assert torch.equal(scope["forward"](x)[0], fn(x))


def test_an_export_collects_no_guards_of_objects(monkeypatch):
    from pliant.exporting import capture

    traces, whole = [], capture.whole
    monkeypatch.setattr(capture, "whole", lambda *args: traces.append(whole(*args)) or traces[-1])
    pliant.export(torch.nn.Linear(4, 4), (torch.ones(2, 4),), dynamic_shapes=({0: pliant.Dim("batch")},))
    assert traces and not any(one.guards for one in traces)


class Moves(nn.Module):
    """Stores a buffer that is not saved where it is already, as models do that move it to their arguments' device."""

    def __init__(self):
        super().__init__()
        self.register_buffer("places", torch.arange(4.0), persistent=False)
        self.kinds = {"some"}

    def forward(self, x, kind="some"):
        self.places = self.places.to(x.device)
        self.kinds.add(kind)
        return x + self.places


def test_what_is_added_to_a_set_that_has_it_is_no_change():
    program = pliant.export(Moves(), (torch.ones(4),))
    assert torch.equal(program(torch.ones(4)), torch.arange(4.0) + 1)
    with pytest.raises(ExportError, match="changes .*kinds"):
        pliant.export(Moves(), (torch.ones(4), "other"))


class Held:
    def __init__(self, x):
        self.x = x


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Held(torch.ones(3)), ("the argument `given` is an object of", "register_pytree_node(Held, ...)")),
        ([{"a": dataclasses.make_dataclass("Point", ["x"])(torch.ones(3))}], ("the argument `given[0]['a']` is", "register_dataclass(Point)")),
        (np.ones(3), ("numpy.ndarray",)),
    ],
    ids=["object", "dataclass", "array"],
)
def test_objects_as_arguments_are_refused(given, said):
    """What they hold may be something else at the next call."""
    with pytest.raises(ExportError) as error:
        pliant.export(lambda given, x: x * 2, (given, torch.ones(3)))
    assert all(one in str(error.value) for one in said)


def test_sets_as_arguments_are_compared_with_what_they_were():
    given = {1, 2}
    program = pliant.export(lambda x, given: x * len(given), (torch.ones(3), given))
    assert torch.equal(program(torch.ones(3), {2, 1}), torch.full((3,), 2.0))
    given.add(3)
    with pytest.raises(ConstraintError, match="argument 1 is {1, 2, 3}, and was {1, 2} at export"):
        program(torch.ones(3), given)


def test_places_of_arguments_are_found_at_once(monkeypatch):
    asked, found = [], assemble.leaves_of
    monkeypatch.setattr(assemble, "leaves_of", lambda value: asked.append(value) or found(value))
    tensors = [torch.full((2,), float(n)) for n in range(6)]
    program = pliant.export(lambda some, more: sum(some) * more["last"], (tensors[:4], {"first": tensors[4], "last": tensors[4]}))
    assert len(asked) == 2
    assert [one.target for one in program.inputs] == ["some[0]", "some[1]", "some[2]", "some[3]", "more['first']", "more['last']"]


def test_what_guards_alone_ask_is_not_asked(monkeypatch):
    """Names of submodules are looked for among parameters and buffers first, where each miss would be a guard."""
    monkeypatch.setattr(World, "keys_place", lambda world, mapping: pytest.fail("asked"))
    model = nn.Module()
    model.inner, model.forward = nn.Linear(4, 4), lambda x: model.inner(x)
    assert pliant.export(model, (torch.ones(2, 4),)).operators()


def test_values_of_static_sizes_are_not_asked_for_symbols(monkeypatch):
    program = pliant.export(lambda x: (x * 2).relu() + 1, (torch.ones(2, 3),))
    monkeypatch.setattr("pliant.graph.interpret.bind_symbols", None)
    assert torch.equal(program(torch.ones(2, 3)), torch.full((2, 3), 3.0))
