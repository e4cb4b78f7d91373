"""Which functions of NumPy return memory of their argument: what is written into it later shows there, or does not."""

import operator

import numpy as np
import pytest
import torch

import pliant

SAME = (
    "flip(v)", "flipud(v)", "fliplr(v)", "rot90(v)", "diagonal(v)", "diag(v)", "ravel(v)", "transpose(v)",
    "moveaxis(v, 0, 1)", "split(v, 2)[0]", "asarray(v)", "asarray(v, dtype=v.dtype)", "expand_dims(v, 0)", "squeeze(v)",
)  # fmt: skip
COPIES = ("positive(v)", "copy(v)", "array(v)", "roll(v, 1)", "tril(v)", "clip(v, 0, 9)")
METHODS = ("flatten()", "ravel()", "astype(v.dtype)", "astype(v.dtype, copy=False)", "astype('f8')", "T.reshape(-1)")
MORE_COPIES = ("conj(v)", "round(v)", "abs(v)", "tile(v, 1)", "repeat(v, 1)", "concatenate([v])", "nan_to_num(v)", "floor(v)")
SCALARS = (
    "v[0, 0]", "v[0][1]", "[one for row in v for one in row]", "next(iter(v[0]))", "list(enumerate(v[1]))", "max(v[0])",
    "(lambda p, *q: (p, *q))(*v[0])", "operator.itemgetter(0, 1)(v[0])", "v[..., 0][1]", "v.max()", "v[0].sum()",
)  # fmt: skip
EXPRESSIONS = [f"np.{text}" for text in SAME + COPIES + MORE_COPIES] + [f"v.{text}" for text in METHODS]
EXPRESSIONS += ["v[::-1]", "v[...]", "+v", "v.conj()", "v.round()", "v.real", *SCALARS]


@pytest.mark.spread(2, "dtype", "expression")
@pytest.mark.parametrize("dtype", ["f4", "i8"])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_memory_of_results(expression, dtype):
    namespace = {"np": np, "operator": operator}
    text = f"def program(x):\n    v = (x.numpy() * 1.0).astype('{dtype}')\n    w = {expression}\n    v[:] = 9\n    return w\n"
    exec(text, namespace)
    x = torch.arange(4.0).reshape(2, 2)
    got, want = (f(x) for f in (pliant.compile(namespace["program"], backend="eager"), namespace["program"]))
    assert np.asarray(got).dtype == np.asarray(want).dtype and type(got) is type(want)
    np.testing.assert_array_equal(got, want)


TURNED = (
    "v[::-1] * 2", "v[::-1].copy()", "v[::-1].sum()", "v[-2::-2] + 1", "v[2:0:-1] * v[1:3]", "v[:-1:-1] * 2", "v[9:-12:-1] * 2",
    "m[::-1, ::2] * 2", "m[..., ::-1] + 1", "m[:, None, ::-1] * 2", "m[1, ::-2] * 3", "m[..., -3, ::-1] * 3", "m[None, ::-1] * 3",
    "m[n - 1::-1, 0] + 1", "m[:n - 3:-1] * 2", "m[::-1, ::-1] @ m.T", "np.ascontiguousarray(m[:, ::-1])", "np.flip(v) * 2",
    "np.flip(m, 1) * 2", "np.fliplr(m) - 1", "np.flipud(m) - 1", "np.rot90(m) * 2", "np.diag(m[:3, :3]) * 2", "np.diag(v)[0] * 2",
    "torch.from_numpy(v[::-1].copy())", "torch.from_numpy(np.ascontiguousarray(m[:, ::-1]))",
)  # fmt: skip


@pytest.mark.parametrize("expression", TURNED)
def test_turned_arrays_are_recorded(expression):
    pliant.reset()
    namespace = {"np": np, "torch": torch}
    text = f"def program(x):\n    n = x.shape[0]\n    v = x.numpy()[:, 1]\n    m = x.numpy()\n    return {expression}\n"
    exec(text, namespace)
    program = namespace["program"]
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for n in (5, 6, 8):
        x = torch.arange(4.0 * n).reshape(n, 4)
        got, want = compiled(x), program(x)
        assert type(got) is type(want) and got.dtype == want.dtype and getattr(got, "strides", 0) == getattr(want, "strides", 0)
        np.testing.assert_array_equal(got, want)
    assert pliant.stats()["graphs"] == 2
    pliant.reset()


SHOWN = ("v[::-1]", "v[::-1][1:]", "[v[::-1].strides]", "torch.from_numpy(v[::-1])", "torch.tensor(v[::-1])", "np.flip(v, 0)")


@pytest.mark.parametrize("expression", SHOWN)
def test_turned_arrays_that_show(expression):
    pliant.reset()
    namespace = {"np": np, "torch": torch}
    exec(f"def program(x):\n    v = x.numpy() * 2\n    return {expression}\n", namespace)
    found = []
    for f in (namespace["program"], pliant.compile(namespace["program"], backend="eager")):
        try:
            result = f(torch.arange(3.0))
            found.append((np.asarray(result).tolist(), getattr(result, "strides", None)))
        except ValueError as error:
            found.append(str(error))
    assert found[0] == found[1]
    assert pliant.stats()["fallbacks"] == 0
    pliant.reset()


def test_arrays_that_are_written_beside_turned_ones():
    def turned(x):
        v = x.numpy() * 1.0
        w = v[::-1]
        w += 1
        v[0] = 7
        return v + w, v[::-1] * 2

    def the_argument(x):
        w = x.numpy()[::-1]
        x.add_(1)
        return w * 2

    for program in (turned, the_argument):
        got, want = (f(torch.arange(3.0)) for f in (pliant.compile(program, backend="eager"), program))
        np.testing.assert_array_equal(got, want)


def on_an_array(x):
    array = x.numpy()
    array += 1
    y = torch.as_tensor(array)
    return x, y, y[:1].mul_(2)


def on_an_array_in_a_block(x):
    with torch.inference_mode():
        y = torch.from_numpy(x.numpy())
        z = torch.ones(2)
    return y, torch.from_numpy(y.numpy()), torch.from_numpy(z.numpy()), torch.tensor(z.numpy())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [on_an_array, on_an_array_in_a_block])
@pytest.mark.parametrize("made, called", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.fallbacks_expected  # memory that inputs share is written
def test_tensors_on_arrays_count_their_own_writes_and_are_of_the_mode_of_their_making(program, made, called, backend):
    def described(one):
        inference = one.is_inference()
        return one.tolist(), inference, inference or one._version, one._is_view()

    def run(function):
        with torch.inference_mode(made):
            x = torch.ones(2)
        with torch.inference_mode(called):
            return list(map(described, function(x)))

    assert run(pliant.compile(program, backend=backend)) == run(program)


def with_a_scalar(x):
    return x + int(np.lcm.reduce([x.shape[0], 6]))


def with_views_of_arrays(x):
    return x + torch.from_numpy(np.arange(6).reshape(2, 3).T * x.shape[0])[:, :1].sum()


@pytest.mark.parametrize("program", [with_a_scalar, with_views_of_arrays])
def test_arrays_and_scalars_in_inference_mode(program):
    with torch.inference_mode():
        compiled = pliant.compile(program, backend="eager", dynamic=True)
        assert all(torch.equal(compiled(torch.ones(n)), program(torch.ones(n))) for n in (5, 6))


MADE_BY_SIZE = {
    "ones": lambda n: np.ones((n, n)),
    "full": lambda n: np.full((n,), 2.5),
    "eye": lambda n: np.eye(n),
    "tril": lambda n: np.tril(np.ones((n, n + 1))),
    "indices": lambda n: np.indices((n, 2)),
    "zeros": lambda n: np.zeros((n, 3)),
    "arange": lambda n: np.arange(1, n + 1),
    "linspace": lambda n: np.linspace(0, 1, n),
}


@pytest.mark.parametrize("made", MADE_BY_SIZE.values(), ids=MADE_BY_SIZE)
def test_arrays_made_of_sizes_are_of_the_sizes_of_the_call(made):
    def program(x):
        return torch.from_numpy(made(x.shape[0])) + x.sum()

    compiled = pliant.compile(program, dynamic=True)
    for n in (4, 5, 7):
        x = torch.arange(float(n))
        torch.testing.assert_close(compiled(x), program(x))


def test_an_empty_array_has_all_its_sizes():
    compiled = pliant.compile(lambda x: np.zeros((x.shape[0], 3, 2)).shape, backend="eager", dynamic=False)
    assert compiled(torch.ones(0)) == (0, 3, 2)


CONVERTED = {
    "of another dtype": lambda array: torch.as_tensor(array, dtype=torch.float32),
    "of its own dtype": lambda array: torch.as_tensor(array, dtype=torch.int64),
    "of a Python type": lambda array: torch.as_tensor(array, dtype=float, device="cpu"),
    "of any dtype": lambda array: torch.as_tensor(array, dtype=None),
    "asarray": lambda array: torch.asarray(array, dtype=torch.int64),
    "a class's own dtype": lambda array: torch.LongTensor(array),
    "a class's other dtype": lambda array: torch.FloatTensor(array),
    "of the default dtype": lambda array: torch.Tensor(array),
    "of an array that is made": lambda array: torch.FloatTensor(np.stack([array, array + 1])),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_tensors_of_a_dtype_share_the_memory_of_arrays_that_have_it(name):
    program = CONVERTED[name]
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for n in (3, 4):
        arrays = np.arange(n), np.arange(n)
        got, want = compiled(arrays[0]), program(arrays[1])
        torch.testing.assert_close(got, want)
        for tensor in (got, want):
            tensor[0] = 7
        np.testing.assert_array_equal(*arrays)
