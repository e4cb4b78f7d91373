"""Recurrent layers: their operators return views that no schema declares, and workspaces only they know the size of."""

import weakref

import pytest
import torch

import pliant


def layer(kind, **options):
    torch.manual_seed(0)
    made = getattr(torch.nn, kind)(8, 16, **options)
    return made, list(made._flat_weights)


def gru(x, h, weights):
    return torch._VF.gru(x, h, weights, True, 1, 0.0, True, False, False)[0]


def lstm(x, h, weights):
    return torch._VF.lstm(x, (h, h), weights, True, 1, 0.0, True, True, False)[0]


@pytest.mark.parametrize("backend", ["aot_eager", "pliant"])
@pytest.mark.parametrize("program", [gru, lstm])
def test_gradients_are_those_of_eager(program, backend):
    _, weights = layer(program.__name__.upper(), bidirectional=program is lstm)
    x, h = torch.randn(3, 5, 8, requires_grad=True), torch.zeros(1 + (program is lstm), 5, 16)
    compiled = pliant.compile(program, backend=backend, fullgraph=True)
    found, expected = [
        (out.detach(), *torch.autograd.grad(out.pow(2).sum(), [x, *weights]))
        for out in (compiled(x, h, weights), program(x, h, weights))
    ]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("program", [gru, lstm])
def test_inference_is_that_of_eager(program):
    _, weights = layer(program.__name__.upper(), bidirectional=program is lstm)
    x, h = torch.randn(3, 5, 8), torch.zeros(1 + (program is lstm), 5, 16)
    with torch.no_grad():
        torch.testing.assert_close(pliant.compile(program, fullgraph=True)(x, h, weights), program(x, h, weights))


def test_pieces_of_an_unsafe_split_are_views_for_the_memory_plan():
    """The split's source is read through its pieces after buffers of its size were written."""

    def program(x, w):
        pieces = torch.unsafe_split(x @ w, 4, 1)
        later = torch.relu(x @ (w + 1)) @ w.T
        return pieces[0] * 2, pieces[1], later @ w

    x, w = torch.randn(6, 8), torch.randn(8, 8)
    torch.testing.assert_close(pliant.compile(program, fullgraph=True)(x, w), program(x, w))


OPTIONS = {"plain": {}, "batch first": {"batch_first": True}, "deep": {"bidirectional": True, "num_layers": 2}}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_one_graph_for_all_lengths(kind, options):
    pliant.reset()
    module = layer(kind, **OPTIONS[options])[0]
    compiled = pliant.compile(module, dynamic=True, fullgraph=True)
    for steps, batch in ((3, 5), (4, 6), (7, 2)):
        x = torch.randn(steps, batch, 8, requires_grad=True)
        found, expected = [
            (out.detach(), states, *torch.autograd.grad(out.pow(2).sum(), [x, *module.parameters()]))
            for out, states in (compiled(x), module(x))
        ]
        torch.testing.assert_close(found, expected)
    assert pliant.stats()["recompiles"] == 0


def test_packed_sequences_of_any_length():
    module = layer("GRU")[0]
    compiled = pliant.compile(
        lambda data, sizes, h: torch.gru(data, sizes, h, module._flat_weights, True, 1, 0.0, True, False), dynamic=True
    )
    for lengths in ([4, 3, 2], [6, 5]):
        packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(6, len(lengths), 8), torch.tensor(lengths))
        h = torch.zeros(1, len(lengths), 16)
        expected = module(packed, h)
        found = compiled(packed.data, packed.batch_sizes, h)
        torch.testing.assert_close(found, (expected[0].data, expected[1]))


def packed_and_padded(module, batch_first, **more):
    def program(x, lengths):
        sorts = more.get("enforce_sorted", True)
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first, enforce_sorted=sorts)
        output, states = module(packed)
        return *torch.nn.utils.rnn.pad_packed_sequence(output, batch_first, -1.0, more.get("total_length")), states

    return program


@pytest.mark.parametrize("more", [{}, {"enforce_sorted": False}, {"total_length": 9}], ids=["sorted", "unsorted", "longer"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_lengths_that_vary_are_one_graph(kind, more):
    """Without gradients."""
    module = layer(kind, bidirectional=True)[0].requires_grad_(False)
    for batch_first in (False, True):
        pliant.reset()
        program = packed_and_padded(module, batch_first, **more)
        compiled = pliant.compile(program, dynamic=True, fullgraph=True)
        for lengths in ([4, 3, 2], [6, 6, 1, 1], [7, 2], [3, 3, 3]):
            lengths = torch.tensor(lengths)
            lengths = lengths if more.get("enforce_sorted", True) else lengths.flip(0)
            x = torch.randn(len(lengths), 7, 8) if batch_first else torch.randn(7, len(lengths), 8)
            torch.testing.assert_close(compiled(x, lengths), program(x, lengths))
        assert pliant.stats()["graphs"] == 1 and not pliant.stats()["fallbacks"]


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("dynamic", [True, None])
def test_lengths_that_vary_in_training(dropout, dynamic):
    """One graph; dropout draws eager's numbers, also where lengths are known."""
    module = torch.nn.LSTM(8, 8, 2, bidirectional=True, dropout=dropout)
    program = packed_and_padded(module, True, enforce_sorted=False)
    pliant.reset()
    compiled = pliant.compile(program, dynamic=dynamic, fullgraph=True)

    def outcome(f, x, lengths):
        torch.manual_seed(0)
        out, count, _ = f(x, torch.tensor(lengths))
        return out.detach(), count, *torch.autograd.grad(out.pow(2).sum(), [x, *module.parameters()]), torch.rand(1)

    for lengths in ([2, 4, 3], [1, 6, 5, 7]):
        x = torch.randn(len(lengths), 7, 8, requires_grad=True)
        torch.testing.assert_close(outcome(compiled, x, lengths), outcome(program, x, lengths))
    assert not pliant.stats()["fallbacks"]


def test_packing_in_training():
    pliant.reset()
    program = lambda x, n: torch.nn.utils.rnn.pack_padded_sequence(x, n, True).data.pow(2).mean()  # noqa: E731
    compiled = pliant.compile(program, dynamic=True, fullgraph=True)
    for lengths in (torch.tensor([3, 2]), torch.tensor([5, 5, 1])):
        x = torch.randn(len(lengths), 6, 2, requires_grad=True)
        found, expected = [torch.autograd.grad(f(x, lengths), x) for f in (compiled, program)]
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("lengths", [[2, 3], [3, 0], [9, 1], [-1, -2]])
def test_lengths_that_are_wrong(lengths):
    """They are an error, but for those longer than the sequences."""
    program = lambda x, n: torch.nn.utils.rnn.pack_padded_sequence(x, n, True).data * 2  # noqa: E731

    def outcome(f, n):
        try:
            return f(x, torch.tensor(n)).tolist()
        except RuntimeError as error:
            return str(error)

    pliant.reset()
    compiled = pliant.compile(program, dynamic=True)
    x = torch.randn(2, 4, 3)
    for given in ([4, 2], lengths, lengths, [4, 2]):
        assert outcome(compiled, given) == outcome(program, given)


def test_weak_references_are_followed():
    a, b = torch.nn.Parameter(torch.randn(3)), torch.nn.Parameter(torch.randn(3))
    references = [weakref.ref(a)]

    def program(x):
        return x * 2 if references[0]() is a else x * references[0]()

    pliant.reset()
    compiled = pliant.compile(program, fullgraph=True)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), program(x))
    references[0] = weakref.ref(b)
    torch.testing.assert_close(compiled(x), program(x))
    assert pliant.stats()["graphs"] == 2
