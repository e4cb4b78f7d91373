"""Warnings of functions of PyTorch that are one node of the graph: as many as eager gives, from the program's lines."""

import threading
import warnings

import pytest
import torch
import torch.nn.functional as F

import own_process
import pliant
from pliant.graph import given_warnings

X, ROW, IMAGE = torch.randn(4, 3), torch.randn(4, 1), torch.randn(1, 2, 4, 4)
GRID, THETA = torch.rand(1, 4, 4, 2) - 0.5, torch.eye(2, 3)[None]
MASK = torch.tensor([1, 0, 1, 0], dtype=torch.uint8)
ENCODER = torch.nn.TransformerEncoder(
    torch.nn.TransformerEncoderLayer(8, 2, dropout=0.0, batch_first=True), 1, enable_nested_tensor=False
).eval()
WORDS, PADDING = torch.randn(2, 3, 8), torch.zeros(2, 3)
FUNCTIONS = {
    "mse_loss": lambda: F.mse_loss(X, ROW),
    "l1_loss": lambda: F.l1_loss(X, ROW),
    "smooth_l1_loss": lambda: F.smooth_l1_loss(X, ROW),
    "huber_loss": lambda: F.huber_loss(X, ROW),
    "MSELoss": lambda: torch.nn.MSELoss()(X, ROW),
    "kl_div": lambda: F.kl_div(X, X),
    "size_average": lambda: F.mse_loss(X, X, size_average=False),
    "softmax": lambda: F.softmax(X),
    "Softmax": lambda: torch.nn.Softmax()(X),
    "softmin": lambda: F.softmin(X),
    "log_softmax": lambda: F.log_softmax(X),
    "grid_sample": lambda: F.grid_sample(IMAGE, GRID),
    "affine_grid": lambda: F.affine_grid(THETA, (1, 2, 4, 4)),
    "upsample": lambda: F.upsample(IMAGE, scale_factor=2),
    "upsample_bilinear": lambda: F.upsample_bilinear(IMAGE, scale_factor=2),
    "dropout2d": lambda: F.dropout2d(X),
    "gumbel_softmax": lambda: F.gumbel_softmax(X, eps=1e-3),
    "masks": lambda: ENCODER(WORDS, src_key_padding_mask=PADDING, mask=torch.zeros(3, 3, dtype=torch.bool)),
    "tensor": lambda: torch.tensor(X),
    "var": lambda: X[:1].var(0),
    "var of one element": lambda: X[0, 0].var(-1),
    "std_mean": lambda: torch.std_mean(X, 1, correction=3),
    "masked by bytes": lambda: X[MASK],
}  # fmt: skip


def _told(given):
    return [(one.category, str(one.message), one.filename, one.lineno) for one in given]


def _calls(run, action):
    """What each of three calls gives where the filters are as named."""
    found = []
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter(action)
        for _ in range(3):
            given.clear()
            try:
                run()
            except UserWarning as error:
                found.append(("raised", str(error), error.__traceback__.tb_next is not None))
            found.append(_told(given))
    return found


def _program(function):
    def program():
        return function() if function is not None else None

    return program


@pytest.mark.spread(2, "name", "action")
@pytest.mark.parametrize("action", ["default", "always", "error", "ignore"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_call_warns_as_eager_does(monkeypatch, name, action):
    monkeypatch.setattr(given_warnings, "_is_alone", lambda: True)  # threads that other tests have left are idle
    function = _program(FUNCTIONS[name])
    pliant.reset()
    expected = _calls(function, action)
    assert _calls(pliant.compile(function), action) == expected
    assert any(expected) == (action != "ignore")


def test_filters_of_the_program_hold():
    def quiet(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = F.softmax(x)
        return y + F.softmin(x)

    pliant.reset()
    found = _calls(pliant.compile(lambda: quiet(X)), "always")
    assert found == _calls(lambda: quiet(X), "always")
    assert [len(one) for one in found] == [1, 1, 1]


def test_filters_of_a_later_call_hold():
    pliant.reset()
    compiled = pliant.compile(FUNCTIONS["mse_loss"])
    assert [len(_calls(compiled, action)[1]) for action in ("always", "ignore", "always")] == [1, 0, 1]
    assert _calls(compiled, "error")[0][0] == "raised"
    assert pliant.stats()["graphs"] >= 1


def test_the_program_records_warnings_itself():
    def program(x, y):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            F.mse_loss(x, y)
        return _told(given)

    compiled = pliant.compile(program)
    assert [compiled(X, ROW) for _ in range(3)] == [program(X, ROW)] * 3


def test_a_graph_with_a_derivative_warns_once_a_call():
    weight = torch.ones(4, 3, requires_grad=True)

    def program(y):
        return F.mse_loss(weight * 2, y)

    pliant.reset()
    compiled = pliant.compile(program)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for count in (1, 2, 3):
            compiled(ROW).backward()
            assert len(given) == count
    assert {(one.filename, one.lineno) for one in given} == {(__file__, program.__code__.co_firstlineno + 1)}


def test_a_message_tells_the_sizes_of_each_call():
    def program(x, y):
        return F.mse_loss(x, y)

    pliant.reset()
    compiled = pliant.compile(program)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for n in (4, 5, 6, 7):
            compiled(torch.ones(n, 3), torch.ones(n, 1))
            assert f"torch.Size([{n}, 1])" in str(given[-1].message)
            assert f"torch.Size([{n}, 3])" in str(given[-1].message)
    assert len(given) == 4
    assert pliant.stats()["graphs"] == 2


# What C++ gives once a process: counted in processes of their own.
ONCE = """
import sys, warnings, torch, pliant
IMAGE, X = torch.randn(1, 2, 4, 4), torch.randn(3, 3)
programs = [
    lambda: IMAGE.T.sum(), lambda: torch.meshgrid(X[0], X[1]), lambda: torch.qr(X), lambda: torch.tensor(X),
    lambda: torch.where(torch.ones(3, dtype=torch.uint8), X[0], X[1]),
]
action, always, compiled = sys.argv[1:]
torch.set_warn_always(always == "always")
warnings.simplefilter(action)
given = []
warnings.showwarning = lambda message, category, file, line, *_: given.append((str(message), category, file, line))
for program in programs:
    run = pliant.compile(program) if compiled == "compiled" else program
    for _ in range(3):
        try:
            run()
        except UserWarning as error:
            given.append(str(error))
        print(given)
        given.clear()
"""


@pytest.mark.parametrize("action", ["always", "error"])
@pytest.mark.parametrize("always", ["always", "once"])
def test_cpp_warns_as_often_as_in_eager(tmp_path, action, always):
    script = tmp_path / "once.py"
    script.write_text(ONCE)
    found = [
        own_process.ran(script, action, always, way, check=True).stdout
        for way in ("eager", "compiled")
    ]
    assert found[1] == found[0]
    assert found[0].count("Triggered internally") == (12 if always == "always" else 4)


def test_the_module_is_left_as_it_was_and_other_threads_are_heard():
    before = warnings.warn, warnings.showwarning, warnings.filters
    stop, heard = threading.Event(), []

    def other():
        while not stop.is_set():
            warnings.warn("from elsewhere", stacklevel=1)
            heard.append(1)

    pliant.reset()
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        thread = threading.Thread(target=other)
        thread.start()
        try:
            pliant.compile(FUNCTIONS["kl_div"])()
        finally:
            stop.set()
            thread.join()
    told = [str(one.message) for one in given]
    assert told.count("from elsewhere") == len(heard)
    assert len(told) - len(heard) == 1
    assert (warnings.warn, warnings.showwarning) == before[:2] and warnings.filters is before[2]


@pytest.mark.fallbacks_expected
def test_collecting_ends_where_the_stack_was_too_short_to_end_it(monkeypatch):
    """An error amid the change of the module: a later capture collects as ever."""
    outcomes = [RecursionError()]

    def is_alone():
        if outcomes:
            raise outcomes.pop()
        return True

    monkeypatch.setattr(given_warnings, "_is_alone", is_alone)
    pliant.reset()
    function = FUNCTIONS["mse_loss"]
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        pliant.compile(function)()
    assert not outcomes and given_warnings._kept.users == 0
    pliant.reset()
    assert _calls(pliant.compile(function), "always") == _calls(function, "always")
