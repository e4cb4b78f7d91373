"""What one dispatcher compiled and kept serves another one, and never where something that matters has changed."""

import collections
import contextlib
import copy
import gc
import json
import pathlib
import time
import types
import warnings
import weakref

import pytest
import torch
from tests.entries import programs

import pliant
from pliant import background
from pliant.cache.lines import TABLES, Lines
from pliant.debug import events
from pliant.dispatch.compiled_function import dispatcher_of
from pliant.entries import keeper
from pliant.errors import CacheWarning, FallbackWarning
from pliant.gc_pause import GcPause


@pytest.fixture(autouse=True)
def folder(tmp_path):
    torch.manual_seed(0)  # weights whose gradients' gradients are sums of numbers in the tens
    pliant.reset()
    with pliant.config.patch(keep_entries=True, cache_dir=str(tmp_path / "cache"), strict=True):
        yield tmp_path / "cache"
        written()  # no thread counts in the next test
    pliant.reset()


def files_of_entries():
    return pathlib.Path(pliant.config.get().cache.cache_dir).glob("v1/entries/??/*/data.json")


def written():
    background.finish()


def kept(fn, *args, **kwargs):
    """Compile and call; what was compiled is on disk."""
    compiled = pliant.compile(fn)  # which has the entry until it is written down
    compiled(*args, **kwargs)
    written()
    assert pliant.stats()["entries"].get("kept"), [e.line for e in events.events("entry")]
    events.reset()


def found(fn, *args, **kwargs):
    """Whether a new dispatcher finds an entry for the call; its result is eager's."""
    events.reset()
    before = copy.deepcopy((args, kwargs))
    torch.manual_seed(0)
    result = pliant.compile(fn)(*args, **kwargs)
    torch.manual_seed(0)
    torch.testing.assert_close(result, fn(*before[0], **before[1]))
    entries = pliant.stats()["entries"]
    assert bool(entries.get("found")) is not bool(events.events("capture"))
    return bool(entries.get("found"))


X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
CALLS = {
    "function": (programs.scaled, (X,), {}),
    "outputs": (programs.several, (X, X + 1), {}),
    "keywords": (programs.several, (X, X), {"flag": False}),
    "names that the text has, too": (programs.named_as_ours, (X, 2.0, X), {}),
    "writes": (programs.writes, (torch.randn(3, 2),), {}),
    "numbers": (programs.numbers, (X, 3), {}),
    "random": (programs.drops, (torch.randn(2, 3),), {}),
    "constant tensor": (programs.constant, (torch.randn(2, 3),), {}),
    "operators of ATen": (programs.refers, (X,), {}),
    "closure, partial": (programs.through_others, (X,), {}),
    "method": (programs.Part().bounded, (X,), {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_is_found(name):
    fn, args, kwargs = CALLS[name]
    with torch.no_grad():
        kept(fn, *copy.deepcopy(args), **kwargs)
        assert found(fn, *copy.deepcopy(args), **kwargs)


@torch.no_grad()
def test_a_model_is_found_for_other_instances():
    kept(programs.Model(), X)
    assert found(programs.Model(), X)
    assert found(programs.Model(), torch.randn(4, 4))
    assert not found(programs.Model(), X, mask=X)  # called otherwise
    assert not found(programs.Model(depth=3), X)
    assert not found(programs.Model().double(), X.double())


@torch.no_grad()
def test_symbolic_sizes_and_what_was_learnt_of_them():
    compiled = pliant.compile(programs.scaled)
    for rows in (4, 5, 6):
        compiled(torch.randn(rows, 4))
    written()
    assert pliant.stats()["entries"]["kept"] == 2
    events.reset()
    again = pliant.compile(programs.scaled)
    for rows in (9, 4, 11):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(again(x), programs.scaled(x))
    assert not events.events("capture")


class RegistersHook(torch.nn.Module):
    """Its first call registers a hook, by a function of another module."""

    def __init__(self):
        super().__init__()
        self.part = torch.nn.Identity()

    def forward(self, x):
        if not self.part._forward_hooks:
            programs.register_one(self.part, 2.0)
        return self.part(x)


class MakesFunction(torch.nn.Module):
    """Its first call makes what the later ones call."""

    function = None

    def forward(self, x):
        if self.function is None:
            self.function = programs.make(3.0)
        return self.function(x)


@torch.no_grad()
def test_functions_that_functions_of_other_modules_make_are_found():
    kept(RegistersHook(), X)
    assert found(RegistersHook(), X)


@torch.no_grad()
def test_what_an_earlier_call_makes_is_looked_for_again():
    for captures in (2, 0):
        compiled = pliant.compile(MakesFunction())
        for _ in range(3):
            torch.testing.assert_close(compiled(X), programs.make(3.0)(X))
            written()
        assert len(events.events("capture")) == captures
        events.reset()


@torch.no_grad()
def test_a_size_that_is_new_to_both_makes_symbols():
    kept(programs.scaled, torch.randn(4, 4))
    again = pliant.compile(programs.scaled)
    for rows in (4, 5, 6):
        again(torch.randn(rows, 4))
    assert len(events.events("capture")) == 1
    assert len(dispatcher_of(again).entries) == 2


@torch.no_grad()
def test_an_entry_that_was_found_explains_why_it_does_not_serve():
    kept(programs.Model(), X)
    model = programs.Model()
    compiled = pliant.compile(model)
    compiled(X)
    model.parts[0].settings.alpha = 0.75
    torch.testing.assert_close(compiled(X), model(X))
    (reason,) = pliant.stats()["recompile_reasons"]
    assert "alpha" in reason
    assert "0.25" in reason


@torch.no_grad()
def test_convolutions_whose_weights_are_packed_are_found():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3, padding=1)).eval()
    x = torch.randn(2, 3, 16, 16)
    kept(model, x)
    assert "packed_convolution" in "".join(one.read_text() for one in files_of_entries())
    again = pliant.compile(copy.deepcopy(model))
    events.reset()
    for _ in range(3):  # the third reads the copy
        torch.testing.assert_close(again(x), model(x), rtol=1e-4, atol=1e-5)
    assert pliant.stats()["entries"] == {"found": 1} and not events.events("capture")


# ---- training


THIRD = {"rtol": 1e-5, "atol": 1e-4}  # gradients of gradients of cubes: sums of numbers in the tens


def gradients(run, model, x):
    """Of everything that requires them; and gradients of gradients."""
    x = x.detach().requires_grad_()
    model.zero_grad()
    y = run(x)
    y.pow(2).sum().backward()
    first = [x.grad, *(p.grad for p in model.parameters())]
    (once,) = torch.autograd.grad(run(x).pow(3).sum(), x, create_graph=True)
    return [y, *first, *torch.autograd.grad(once.sum(), [x, *model.parameters()], allow_unused=True)]


def test_a_backward_is_found():
    model = programs.Model()
    compiled = pliant.compile(model)
    torch.testing.assert_close(gradients(compiled, model, X), gradients(model, model, X), **THIRD)
    written()
    assert pliant.stats()["entries"].keys() == {"kept"}  # once, with the backward, where that comes soon
    events.reset()
    model = programs.Model()
    torch.testing.assert_close(gradients(pliant.compile(model), model, X), gradients(model, model, X), **THIRD)
    assert not events.events("capture")
    assert {e.fields["reason"] for e in events.events("fallback")} == {"kept-entry"}  # gradients of gradients


def test_a_backward_that_nobody_asked_for_is_compiled_by_who_does():
    pliant.compile(programs.Model())(X.clone().requires_grad_())
    written()
    events.reset()
    model = programs.Model()
    compiled = pliant.compile(model)
    for _ in range(3):
        torch.testing.assert_close(gradients(compiled, model, X), gradients(model, model, X), **THIRD)
    assert [e.fields["reason"] for e in events.events("fallback")] == ["kept-entry"]
    assert len(events.events("capture")) == 1
    written()
    events.reset()
    torch.testing.assert_close(gradients(pliant.compile(model), model, X), gradients(model, model, X), **THIRD)
    assert not events.events("capture")


def test_the_backward_of_symbolic_sizes_is_found():
    model = programs.Model()
    compiled = pliant.compile(model, dynamic=True)
    gradients(compiled, model, torch.randn(6, 4))
    written()
    events.reset()
    again = pliant.compile(model, dynamic=True)
    for rows in (3, 5, 7):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(gradients(again, model, x), gradients(model, model, x), **THIRD)
    assert not events.events("capture")


@pytest.mark.parametrize("given", [[(0, 1)], [(0, 1), (1,)], [(0,), (0, 1), (1,)]])
def test_some_gradients_alone_are_those_of_eager(given):
    def two(x, y):
        return x.sin() * y, (x * 2).exp()

    def some(run, asked):
        x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
        results = run(x, y)
        torch.autograd.backward([results[k].sum() for k in asked])
        return x.grad, y.grad

    first = pliant.compile(two)
    for asked in given:
        some(first, asked)
    written()
    events.reset()
    again = pliant.compile(two)
    for asked in ((0, 1), (0,), (1,)):
        torch.testing.assert_close(some(again, asked), some(two, asked))
    assert not events.events("capture"), [e.line for e in events.events("entry")]


def test_a_backward_for_some_of_the_results_is_found():
    def loss_and_more(x):
        y = x.sin()
        return y.sum(), y * 2

    def loss_alone(run):
        x = X.clone().requires_grad_()
        run(x)[0].backward()
        return x.grad

    torch.testing.assert_close(loss_alone(pliant.compile(loss_and_more)), X.cos())
    written()
    events.reset()
    torch.testing.assert_close(loss_alone(pliant.compile(loss_and_more)), X.cos())
    assert not events.events("capture") and not events.events("fallback")


# ---- changes


def _other_forward(self, x):
    return torch.nn.functional.linear(x, self.weight, self.bias) * 3


@contextlib.contextmanager
def _hooked(model):
    handle = model.parts[0].register_forward_hook(lambda module, args, result: result * 2)
    yield
    handle.remove()


CHANGES = {
    "a global number": ("scaled", lambda patch, model: patch.setattr(programs, "SCALE", 3.0)),
    "an item": ("scaled", lambda patch, model: patch.setitem(programs.TABLE, "a", -0.0)),
    "a function": ("scaled", lambda patch, model: patch.setattr(programs, "inner", lambda x: x)),
    "code": ("scaled", lambda patch, model: patch.setattr(programs.inner, "__code__", (lambda x, factor: x - factor).__code__)),
    "a default": ("scaled", lambda patch, model: patch.setattr(programs.inner, "__defaults__", (4.0,))),
    "a closure": ("through_others", lambda patch, model: patch.setattr(programs, "closure", programs.make(4.0))),
    "a cell": ("through_others", lambda patch, model: patch.setattr(programs.closure.__closure__[0], "cell_contents", 5.0)),
    "a function in C": ("scaled", lambda patch, model: patch.setattr(torch, "relu", torch.sigmoid)),
    "a class attribute": ("Model", lambda patch, model: patch.setattr(programs.Part, "limit", 0.1)),
    "a method": ("Model", lambda patch, model: patch.setattr(programs.Part, "shifted", staticmethod(lambda x: x - 1))),
    "a property": ("Model", lambda patch, model: patch.setattr(programs.Part, "slope", property(lambda self: 7.0))),
    "a method of PyTorch's": ("Model", lambda patch, model: patch.setattr(torch.nn.Linear, "forward", _other_forward)),
    "a hyperparameter": ("Model", lambda patch, model: patch.setattr(model.parts[0].settings, "alpha", 0.5)),
    "a member": ("Model", lambda patch, model: patch.setattr(model.parts[0].settings, "kind", programs.Kind.NARROW)),
    "what a member is": ("Model", lambda patch, model: patch.setattr(programs.Kind.WIDE, "_value_", "narrow")),
    "eps": ("Model", lambda patch, model: patch.setattr(model.parts[0].norm, "eps", 0.5)),
    "a partial's keyword": ("through_others", lambda patch, model: patch.setitem(programs.partial.keywords, "alpha", 5)),
}


@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_a_change_is_noticed(name, monkeypatch):
    which, change = CHANGES[name]
    target = getattr(programs, which)
    target = target() if isinstance(target, type) else target
    kept(target, X)
    change(monkeypatch, target)
    assert not found(target, X)


SETTINGS = {
    "grad mode": lambda: torch.enable_grad(),
    "inference": lambda: torch.inference_mode(),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "an option": lambda: pliant.config.patch(fuse=False),
    "threads": lambda: _threads(torch.get_num_threads() + 1),
    "precision": lambda: _precision("medium"),
}


@contextlib.contextmanager
def _threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


@contextlib.contextmanager
def _precision(name):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("name", SETTINGS)
@torch.no_grad()
def test_a_setting_is_noticed(name):
    kept(programs.scaled, X)
    with SETTINGS[name]():
        assert not found(programs.scaled, X)
    assert found(programs.scaled, X)


@torch.no_grad()
def test_a_function_of_the_same_name_with_another_namespace_is_another():
    kept(programs.scaled, X)
    namespace = {**vars(programs), "SCALE": 9.0}
    fn = types.FunctionType(programs.scaled.__code__, namespace, "scaled")
    fn.__module__, fn.__qualname__ = programs.__name__, "scaled"
    assert not found(fn, X)


@torch.no_grad()
def test_a_mark_is_noticed():
    kept(programs.scaled, X)
    fresh = types.FunctionType(programs.inner.__code__, vars(programs), "inner", (1.5,))
    fresh.__module__, fresh.__qualname__ = programs.__name__, "inner"
    before, programs.inner = programs.inner, pliant.disable(fresh)
    try:
        assert not found(programs.scaled, X)
    finally:
        programs.inner = before


# ---- what is not kept


@pytest.mark.parametrize(
    ("operator", "key", "refused"),
    [
        ("acosh", "CPU", True),
        ("acosh", "AutogradCPU", True),
        ("acosh", "FuncTorchBatched", True),
        ("addr", "FuncTorchBatched", True),  # in place of PyTorch's own in Python
        ("acosh", "Meta", False),
        ("acosh", "CUDA", torch.cuda.is_initialized()),
    ],
)
def test_kernels_of_the_programs_own_for_aten(operator, key, refused):
    torch.vmap(lambda x: x * 2)(X)  # PyTorch registers some for transforms itself, which are nobody's
    library = torch.library.Library("aten", "IMPL")
    try:
        with pliant.config.patch(strict=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are what runs
            library.impl(operator, lambda *args: args[0], key, allow_override=True)
            pliant.compile(programs.scaled)(X)
            written()
    finally:
        library._destroy()
    assert pliant.stats()["entries"].get("not kept", 0) == int(refused) == sum(pliant.stats()["entry_reasons"].values())
    assert ("own-kernels" in {e.fields.get("reason") for e in events.events("entry")}) is refused


def test_kernels_of_the_programs_own_for_aten_run():
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("sin", lambda x: torch.cos(x), "CPU")
        library.impl("square", lambda x: x * 7, "CPU")  # which PyTorch makes of others
        fn = lambda x: torch.sin(x) + torch.square(x)  # noqa: E731
        with pliant.config.patch(strict=False), pytest.warns(FallbackWarning, match="kernels of its own"):
            torch.testing.assert_close(pliant.compile(fn)(X), torch.cos(X) + X * 7)
    finally:
        library._destroy()
    assert [e.fields["reason"] for e in events.events("fallback")] == ["own-kernels"]


@pytest.mark.parametrize(("fn", "reason"), [(programs.hashes, "process-bound"), (programs.lazily, "runs-later")])
@torch.no_grad()
def test_what_is_not_kept_is_told(fn, reason):
    compiled = pliant.compile(fn)
    compiled(X)
    written()
    assert reason in {e.fields["reason"] for e in events.events("entry")}
    assert pliant.stats()["entries"]["not kept"] >= 1
    assert "found" not in pliant.stats()["entries"]


@torch.no_grad()
def test_a_truncated_entry_is_dropped_with_one_warning(folder):
    kept(programs.scaled, X)
    (file,) = folder.glob("v1/entries/*/*/data.json")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.warns(CacheWarning, match="corrupt"):
        assert not found(programs.scaled, X)
    written()
    assert found(programs.scaled, X)


@torch.no_grad()
def test_an_entry_whose_kernels_are_gone_is_compiled_again(folder):
    kept(programs.scaled, X)
    for file in folder.glob("v1/kernels/*/*/data.so"):
        file.unlink()
    assert not found(programs.scaled, X)


@torch.no_grad()
def test_an_entry_is_text_that_names_no_address(folder):
    kept(programs.Model(), X)
    (file,) = folder.glob("v1/entries/*/*/data.json")
    data = Lines(file.read_bytes())
    assert data["objects"][0] == ["root"]
    text = file.read_text() + json.dumps([data[name] for name in TABLES])
    assert " at 0x" not in text
    assert str(id(programs.inner)) not in text


@torch.no_grad()
def test_the_same_program_is_the_same_text(folder, tmp_path):
    texts = []
    for name in ("one", "other"):
        pliant.reset()
        with pliant.config.patch(cache_dir=str(tmp_path / name)):
            kept(programs.Model(), X)
        (file,) = (tmp_path / name).glob("v1/entries/*/*/data.json")
        texts.append(file.read_bytes())
    assert texts[0] == texts[1]


@torch.no_grad()
def test_what_is_kept_can_be_shown(capsys):
    from pliant.cache.__main__ import main

    kept(programs.scaled, X)
    assert main(["show", "scaled"]) == 0
    shown = capsys.readouterr().out
    assert "entries: 1 entries" in shown
    assert "scaled: " in shown
    assert "def entry(args, kwargs):" in shown
    assert main(["show", "nothing"]) == 0
    assert "def entry" not in capsys.readouterr().out
    assert main([]) == 2


@torch.no_grad()
def test_what_explains_compiles_afresh():
    kept(programs.scaled, X)
    assert pliant.explain(programs.scaled)(X).graphs


CHANGES_BEHIND_THE_CALL = {
    "code": lambda: setattr(programs.helper_of_changed, "__code__", (lambda x: x - 7).__code__),
    "a default": lambda: setattr(programs.helper_of_changed, "__defaults__", (9.0,)),
    "a method": lambda: setattr(programs.Changed, "step", lambda self, x: x - 7),
    "a method's code": lambda: setattr(programs.Changed.step, "__code__", (lambda self, x: x - 7).__code__),
}


@pytest.mark.parametrize("what", CHANGES_BEHIND_THE_CALL)
@torch.no_grad()
def test_what_changes_before_the_entry_is_written(what):
    """Names and tables are made behind the call: of what capture saw then, not of what is there by now."""
    before = programs.helper_of_changed.__code__, programs.helper_of_changed.__defaults__, programs.Changed.step
    code = programs.Changed.step.__code__
    try:
        with keeper._writing:
            pliant.compile(programs.changed)(X)
            CHANGES_BEHIND_THE_CALL[what]()
        written()
        assert not found(programs.changed, X)
    finally:
        programs.helper_of_changed.__code__, programs.helper_of_changed.__defaults__, programs.Changed.step = before
        programs.Changed.step.__code__ = code
    written()
    found(programs.changed, X)  # or not: code that is not there any more may have no name


def test_gradients_of_other_results_than_were_asked_for_are_eagers():
    """Zeros for what is not asked for would be NaN times zero at the root of 0."""

    def gradients(f, place):
        x, p, q = (t.requires_grad_() for t in (torch.tensor([0.0, 1.0]), torch.ones(2), torch.ones(2)))
        f(x, p, q)[place].sum().backward()
        return [x.grad, p.grad, q.grad]

    gradients(pliant.compile(programs.losses), 1)
    written()
    events.reset()
    for place in range(3):
        torch.testing.assert_close(gradients(pliant.compile(programs.losses), place), gradients(programs.losses, place))
    assert pliant.stats()["entries"]["found"]


def test_what_is_kept_holds_nothing_of_the_program():
    model = programs.Model()
    gone = weakref.ref(model)
    compiled = pliant.compile(model)
    compiled(torch.ones(4, 4)).sum().backward()
    written()
    gc.collect()
    gc.disable()
    try:
        del model, compiled
        assert gone() is None
    finally:
        gc.enable()


def test_a_model_that_is_dropped_before_its_entry_is_written_is_gone():
    model = programs.Model()
    gone = weakref.ref(model)
    with keeper._writing:
        compiled = pliant.compile(model)
        compiled(torch.ones(4, 4)).sum().backward()
        del model, compiled
        time.sleep(2 * keeper._MOMENT)
        gc.collect()
        assert gone() is None
    written()
    assert pliant.stats()["entry_reasons"] == {"dropped": 1}


@torch.no_grad()
def test_the_call_returns_before_its_entry_is_written(monkeypatch):
    """Threads take turns: one that writes while the call returns lengthens it. What the program lets go of meanwhile is kept, too."""
    monkeypatch.setattr(keeper, "_HEAD_START", 60.0)
    pliant.compile(programs.Model())(torch.ones(4, 4))
    time.sleep(0.3)
    assert not list(files_of_entries())
    began = time.monotonic()
    written()  # who waits for the entry does not wait for that
    assert list(files_of_entries()) and time.monotonic() - began < 30


@torch.no_grad()
def test_what_is_let_go_of_at_once_is_kept():
    """While another entry is written, too."""
    for make in (programs.Model, lambda: lambda x: x.cos() * 2, lambda: lambda x: x.sin() + 1):
        pliant.compile(make())(torch.ones(4, 4))
    written()
    assert "dropped" not in pliant.stats()["entry_reasons"]


def test_what_still_compiles_goes_first():
    with GcPause():
        pliant.compile(programs.Model())(torch.ones(4, 4)).sum().backward()
        time.sleep(0.3)
        assert not list(files_of_entries())
    written()


# ---- what users say about sizes


def _marked(how, *more):
    x = torch.randn(6, 4)
    how(x, 0, *more)
    return x


MARKS = {
    "nothing": lambda: torch.randn(6, 4),
    "dynamic": lambda: _marked(pliant.mark_dynamic),
    "static": lambda: _marked(pliant.mark_static),
    "perhaps": lambda: _marked(pliant.maybe_mark_dynamic),
}


@pytest.mark.parametrize("said", MARKS)
@torch.no_grad()
def test_what_was_said_about_sizes_is_noticed(said):
    kept(programs.scaled, MARKS[said]())
    for other in MARKS:
        events.reset()
        result = pliant.compile(programs.scaled)(x := MARKS[other]())
        torch.testing.assert_close(result, programs.scaled(x))
        assert bool(pliant.stats()["entries"].get("found")) is (other == said)


@torch.no_grad()
def test_a_search_for_entries_asks_nothing_of_other_arguments():
    """A dict that makes what it lacks has no more keys for having been looked at."""

    def total(x, given):
        return x * 2 + len(given)

    kept(total, X, {"a": X, "b": {"c": X}})
    given = collections.defaultdict(list, {"a": [X]})
    torch.testing.assert_close(pliant.compile(total)(X, given), total(X, given))
    assert list(given) == ["a"]


@torch.no_grad()
def test_a_range_that_does_not_hold_is_told_though_there_is_an_entry():
    def first_of_six(x):
        return x[:6] * 2 if x.shape[0] == 6 else x

    kept(first_of_six, torch.randn(6, 4))
    with pytest.raises(pliant.errors.ConstraintError):
        pliant.compile(first_of_six)(_marked(pliant.mark_dynamic))


@torch.no_grad()
def test_found_graphs_are_counted_as_graphs():
    kept(programs.Model(), X)
    assert found(programs.Model(), X)
    stats = pliant.stats()
    assert stats["graphs"] == 1 and stats["entries"] == {"found": 1}
    (graph,) = events.events("found_graph")
    assert graph.fields["nodes"] > 5 and "another process" in graph.line


@pytest.mark.parametrize("option", ["keep_entries", "cache"])
def test_a_function_may_be_left_out_by_its_options(option):
    kept(programs.scaled, X)
    many = len(list(files_of_entries()))
    pliant.compile(programs.scaled, options={option: False})(X)
    pliant.compile(programs.several, options={option: False})(X, X + 1)
    written()
    assert not pliant.stats()["entries"] and len(list(files_of_entries())) == many


def test_a_function_may_have_a_folder_of_its_own(tmp_path):
    options = {"cache_dir": str(tmp_path / "own")}
    pliant.compile(programs.scaled, options=options)(X)
    written()
    assert not list(files_of_entries()) and list((tmp_path / "own").glob("v1/entries/??/*/data.json"))
