"""What a `with` block has set holds in code that runs outside the graph, at a break and behind it."""

import contextlib
import io
import warnings

import pytest
import torch

import pliant


@pliant.disable
def look(log):
    log.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
    log.append((torch.get_default_dtype(), torch.empty(0).device.type))


@pliant.disable
def warn(log, category=UserWarning):
    try:
        warnings.warn("x", category, stacklevel=1)
    except Warning:
        log.append(f"{category.__name__} raised")
    else:
        log.append(f"{category.__name__} passed")


def inference_mode(x, log):
    with torch.inference_mode():
        look(log)
        y = x + 1
        with torch.inference_mode(False):
            look(log)
    look(log)
    return y * 2


@torch.inference_mode()
def inference_function(x, log):
    look(log)
    return x * 2


def autocast(x, log):
    with torch.autocast("cpu", torch.bfloat16):
        look(log)
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            look(log)
        y = x @ x
    look(log)
    return y


def default_device(x, log):
    with torch.device("meta"):
        look(log)
    look(log)
    return x + 1


def filters_of_warnings(x, log):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warn(log)
        inner_filters(log)
        warn(log)
        warn(log, DeprecationWarning)
    warn(log)
    log.append(len(warnings.filters))
    return x + 1


def inner_filters(log):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        warn(log)
        warn(log, DeprecationWarning)
        with warnings.catch_warnings():
            warnings.resetwarnings()
            warnings.simplefilter("ignore", append=True)
            warn(log, DeprecationWarning)
        warn(log, DeprecationWarning)


def standard_output(x, log):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        look(log)
        print("printed")
    log.append(text.getvalue())
    return x + 1


@pytest.mark.parametrize(
    "program",
    (inference_mode, inference_function, autocast, default_device, filters_of_warnings, standard_output),
    ids=lambda p: p.__name__,
)
def test_blocks_hold_behind_a_break(program):
    compiled = pliant.compile(program, backend="eager")
    for requires_grad in (False, True, True):
        x = torch.ones(2, 2, requires_grad=requires_grad)
        theirs, mine = [], []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want, got = program(x, theirs), compiled(x, mine)
        assert mine == theirs
        assert torch.equal(got, want)
        assert (got.requires_grad, got.is_inference()) == (want.requires_grad, want.is_inference())


@pytest.mark.skipif(torch.cuda.is_available(), reason="choices that hold while a graph runs break it")
def test_choices_for_an_absent_device_are_part_of_the_graph():
    def program(x):
        with torch.backends.cudnn.flags(enabled=False, deterministic=True):
            y = x * 2
        return y + 1

    compiled = pliant.compile(program, fullgraph=True)
    before = torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic
    assert torch.equal(compiled(torch.ones(3)), program(torch.ones(3)))
    assert (torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic) == before


def test_several_choices_of_kernels_are_one_break_each_way():
    def program(x):
        with torch.backends.mkldnn.flags(enabled=False, deterministic=True):
            y = x * 2
        return y + torch.backends.mkldnn.is_available()

    pliant.reset()
    before = torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic
    assert torch.equal(pliant.compile(program)(torch.ones(3)), program(torch.ones(3)))
    assert (torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic) == before
    assert pliant.stats()["break_reasons"] == {"mutated-global-state": 2}


@pytest.mark.parametrize(
    "filters, breaks",
    [
        ([("error", "other", Warning)], 0),
        ([("error", "care", Warning)], 1),
        ([("error", "", DeprecationWarning)], 0),
        ([("error", "", Warning), ("ignore", "care", Warning)], 0),  # the last one given is asked first
        ([("ignore", "", Warning), ("error", "care", UserWarning)], 1),
    ],
)
def test_the_first_filter_that_takes_a_warning_decides_whether_it_raises(filters, breaks):
    def program(x):
        try:
            warnings.warn("careful", stacklevel=1)
        except UserWarning:
            return x - 1
        return x + 1

    pliant.reset()
    with warnings.catch_warnings():
        for action, message, category in filters:
            warnings.filterwarnings(action, message, category)
        x = torch.ones(2)
        assert torch.equal(pliant.compile(program, backend="eager")(x), program(x))
    assert pliant.stats()["graph_breaks"] == breaks
