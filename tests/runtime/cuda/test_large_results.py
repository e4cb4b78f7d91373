"""Programs whose large results are made outside their recordings: two parts that do together what the program does."""

import copy

import pytest
import torch
from torch import nn

import pliant
from fake_recorder import FakeRecorder
from pliant.debug import events
from pliant.ir.interpret import run
from pliant.ir.loops import LoopProgram
from pliant.runtime import compile_graph
from pliant.runtime.compile_program import CompiledGraph
from pliant.runtime.cuda import graphs, large_results


class Interpreted(CompiledGraph):
    """A loop program run by the interpreter, whose operators the recorder sees."""

    def __init__(self, program, options=None):
        super().__init__(program.name, lambda inputs: _emptied(program, inputs), [], "")


def _emptied(program: LoopProgram, inputs):
    given = list(inputs)
    inputs.clear()
    return run(program, given)


@pytest.fixture(params=["interpreted", "compiled"])
def parts(request, monkeypatch):
    """The splits that were made of programs compiled meanwhile, on a CPU that is taken for a GPU."""
    pliant.reset()
    found = []

    def split(program, private):
        found.append(large_results_split(program, private))
        return found[-1]

    large_results_split = large_results.split
    monkeypatch.setattr(large_results, "LARGE", 1024)
    monkeypatch.setattr(large_results, "split", split)
    monkeypatch.setattr(compile_graph, "_recorded_on", lambda program: torch.device("cpu"))
    if request.param == "interpreted":
        recorder = FakeRecorder()
        monkeypatch.setattr(compile_graph, "compile_program", Interpreted)
        monkeypatch.setattr(graphs, "recorded_on", lambda call, roles, *_: graphs.Graphed(call, roles, recorder, "f"))
    else:  # what kernels do is not recorded here
        monkeypatch.setattr(graphs, "recorded_on", lambda call, *_: call)
    yield found
    pliant.reset()


class Head(nn.Module):
    """Hidden states, and logits of them as `last` makes them."""

    def __init__(self, last):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.last = nn.Linear(8, 8), nn.Linear(8, 60, bias=False), last

    def forward(self, x):
        hidden = self.body(x).tanh()
        return self.last(hidden, self.head)


LASTS = {
    "of a product": lambda hidden, head: head(hidden),
    "and what it is of": lambda hidden, head: (hidden, head(hidden)),
    "scaled behind it": lambda hidden, head: torch.tanh(head(hidden) / 3) * 3,
    "beside a sum of what it is of": lambda hidden, head: (hidden.sum(0), head(hidden).relu(), hidden.shape[0]),
    "and a loss of them": lambda hidden, head: (logits := head(hidden), logits.float().logsumexp(1).mean()),
    "a part of a product": lambda hidden, head: head(hidden)[:, :50],
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("last", list(LASTS))
def test_are_those_of_the_whole(parts, last, dynamic):
    model = Head(LASTS[last]).eval()
    compiled, earlier = pliant.compile(model, dynamic=dynamic), []
    with torch.no_grad():
        for step in range(6):
            x = torch.randn(16 + step % 2, 8)
            given, wanted = compiled(x), model(x)
            torch.testing.assert_close(given, wanted)
            earlier.append((given, wanted))
    assert parts and None not in parts and all(one.shown == len(one.begin.outputs) - 1 - dynamic_symbols(one) for one in parts)
    torch.testing.assert_close(*zip(*earlier))  # nobody wrote over results


def dynamic_symbols(one):
    return sum(type(given).__name__ == "Symbol" for given in one.end.inputs)


def test_of_a_recording_are_never_in_its_memory(parts):
    """A caller that keeps all results does not keep the recording from being replayed."""
    model = Head(LASTS["of a product"]).eval()
    compiled = pliant.compile(model)
    with torch.no_grad():
        kept = [compiled(torch.randn(16, 8)) for _ in range(6)]
    assert len({one.data_ptr() for one in kept}) == 6
    assert not events.events("cuda_graph_skipped")


def test_of_training_are_right(parts):
    model, twin = Head(LASTS["of a product"]), Head(LASTS["of a product"])
    compiled = pliant.compile(model)
    for _ in range(4):
        x = torch.randn(16, 8)
        compiled(x).square().sum().backward()
        twin(x).square().sum().backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])


def test_that_a_backward_reads_stay_in_the_recording(parts):
    model = Head(lambda hidden, head: head(hidden).tanh().sum())  # the backward reads 1 KB and more of what the head gives
    twin = copy.deepcopy(model)
    compiled = pliant.compile(model)
    for _ in range(6):
        x = torch.randn(16, 8)
        compiled(x).backward()
        twin(x).backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])
    assert parts and parts == [None] * len(parts)


@pytest.mark.parametrize("parts", ["compiled"], indirect=True)
@pytest.mark.parametrize(
    "program",
    [
        lambda x, w: (x.tanh() @ w).sum(),  # nothing large
        lambda x, w: x.tanh()[:, :, None] * w,  # no library call
        lambda x, w: x.add_(1) @ torch.cat([w] * 40, 1),  # writes an input
    ],
)  # fmt: skip
def test_of_other_programs_are_made_with_the_rest(parts, program):
    compiled = pliant.compile(program)
    for _ in range(4):
        x, w = torch.randn(16, 8), torch.randn(8, 8)
        torch.testing.assert_close(compiled(x.clone(), w), program(x.clone(), w))
    assert parts == [None] * len(parts)
