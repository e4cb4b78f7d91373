"""Arrays that NumPy's generators draw, of sizes that vary: one graph, and the generator goes on as in eager."""

import numpy as np
import pytest
import torch

import pliant

SEEDED = np.random.RandomState(3)
PROGRAMS = {
    "permutation": lambda x, k: x[np.random.permutation(k)],
    "of a size": lambda x, k: np.random.permutation(len(x)),
    "rand": lambda x, k: np.random.rand(k).sum() + x,
    "randn": lambda x, k: torch.from_numpy(np.random.randn(k, 3)).sum() + x,
    "normal": lambda x, k: np.random.normal(0, 0.1, size=(k, 2)),
    "uniform": lambda x, k: np.random.uniform(-1, 1, k),
    "randint": lambda x, k: x[np.random.randint(0, 4, k)],
    "choice": lambda x, k: x[np.random.choice(4, size=k + 1)],
    "random": lambda x, k: SEEDED.random_sample((2, k)),
    "several": lambda x, k: (np.random.rand(k), np.random.randn(k), np.random.permutation(k)),
}


def shuffled(x, k):
    order = np.arange(k)
    np.random.shuffle(order)
    return x[order], order


def shuffled_rows(x, k):
    table = np.arange(2.0 * k).reshape(k, 2)
    np.random.shuffle(table)
    return table


def shuffled_argument(x, k):
    table = np.arange(3.0)
    np.random.shuffle(table)
    return table * k


def check(program, numbers):
    pliant.reset()
    compiled = pliant.compile(program, fullgraph=True)
    for k in numbers:
        found, states = [], []
        for one in (program, compiled):
            np.random.seed(k)
            SEEDED.seed(k)
            found.append(one(torch.arange(float(k + 1)), k))
            states.append([state.get_state(legacy=False)["state"]["pos"] for state in (np.random.mtrand._rand, SEEDED)])
        torch.testing.assert_close(found[1], found[0])
        assert states[0] == states[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_all_sizes(name):
    check(PROGRAMS[name], (4, 5, 6, 7))
    assert pliant.stats()["graphs"] <= 2
    assert pliant.stats()["recompiles"] == 1


@pytest.mark.parametrize("program", [shuffled, shuffled_rows, shuffled_argument])
def test_shuffled_arrays(program):
    check(program, (4, 5, 6, 7))
    assert pliant.stats()["recompiles"] == 1


@pytest.mark.parametrize("program", [PROGRAMS["permutation"], PROGRAMS["several"], shuffled])
def test_no_rows_and_one(program):
    check(program, (4, 5, 1, 0, 6))


def test_gradients_beside_a_drawn_array():
    weight, table = torch.ones(3, requires_grad=True), np.arange(12.0, dtype=np.float32).reshape(4, 3)

    def program(n):
        loss = (torch.as_tensor(table[np.random.randint(0, 4, size=n)]) * weight).sum()
        loss.backward()
        return loss.detach()

    check(lambda x, k: program(k), (4, 5))
    assert weight.grad is not None
