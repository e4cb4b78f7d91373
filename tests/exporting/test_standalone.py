"""Libraries that need neither Python nor PyTorch: what a call computes, what it refuses, what cannot be packaged.

`python -m tests.exporting.standalone` builds models and calls them from a C program, under sanitizers if asked.
"""

import ctypes
import shutil
import subprocess

import pytest
import torch
from tests.exporting import loops, standalone, wasm_module
from torch import nn
from torch.nn import functional as F

import pliant
from pliant.errors import ExportError
from pliant.exporting.standalone.library import texts_of
from pliant.exporting.standalone.writer import DTYPES


class CTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


_BY_CODE = {row: dtype for dtype, row in DTYPES.items()}


class Library:
    """A folder's library, called with torch's tensors."""

    def __init__(self, folder):
        self.c = ctypes.CDLL(str(folder / "libprogram.so"))
        self.c.pliant_error.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()
        code = self.c.pliant_create(str(folder / "weights").encode(), None, ctypes.byref(self.handle))
        assert code == 0, self.c.pliant_error()

    def __call__(self, *args):
        results = (CTensor * self.c.pliant_result_count())()
        given = (CTensor * len(args))(*map(self._given, args))
        code = self.c.pliant_run(self.handle, given, len(args), results)
        if code:
            raise RuntimeError(code, self.c.pliant_error().decode())
        found = [self._read(one) for one in results]
        self.c.pliant_release(self.handle, results, len(results))
        return found

    def _given(self, x):
        numbers = ctypes.c_int64 * x.dim()
        return CTensor(x.data_ptr(), 1, 0, x.dim(), *DTYPES[x.dtype], numbers(*x.shape), numbers(*x.stride()), 0)

    def _read(self, one):
        if not one.data:
            return None
        size, stride = one.shape[: one.ndim], one.strides[: one.ndim]
        dtype = _BY_CODE[one.code, one.bits, one.lanes]
        made = torch.empty_strided(size, stride, dtype=dtype)
        ctypes.memmove(made.data_ptr(), one.data, made.untyped_storage().nbytes())
        return made


class Small(nn.Module):
    """Every operator that has loops of its own, and a block of attention."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depth = nn.Conv2d(8, 16, 3, padding=2, dilation=2, groups=8, bias=False)
        self.grouped, self.line = nn.Conv2d(16, 8, (1, 3), groups=4), nn.Conv1d(8, 6, 3, stride=2, padding=1)
        self.mix, self.names = nn.Linear(8, 24), nn.Embedding(10, 8)

    def forward(self, x, at, y):
        image = F.hardswish(self.grouped(self.depth(self.stem(x))))
        most, where = F.max_pool2d(image, 3, 2, 1, return_indices=True)
        mean = F.avg_pool2d(image, 2, padding=1, ceil_mode=True)
        rows = self.names(at) + most.flatten(2).transpose(1, 2)[:, : at.shape[1]]
        query, key, value = self.mix(rows).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=y[:, None] > 0).transpose(1, 2).flatten(2)
        y.mul_(2)
        product = torch.baddbmm(y, rows, rows.transpose(1, 2), beta=0.5, alpha=2.0)
        return mixed, where, mean.mT, self.line(rows.mT), product, at, x.shape[0] * 2, None


def arguments(n, length=5):
    return torch.randn(n, 3, 12, 12), torch.randint(0, 10, (n, length)), torch.randn(n, length, length, dtype=torch.float32)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_a_library_computes_what_the_model_does(tmp_path):
    torch.manual_seed(0)
    model, batch = Small().eval(), pliant.Dim("batch", max=6)
    program = pliant.export(model, arguments(4), dynamic_shapes=({0: batch}, {0: batch}, {0: batch}))
    pliant.aot_compile(program, tmp_path, interface="standalone", options={"opt_flags": ("-O1",)})
    needed = subprocess.run(["ldd", tmp_path / "libprogram.so"], capture_output=True, text=True, check=True).stdout
    assert "libc.so" in needed and "torch" not in needed and "python" not in needed
    library = Library(tmp_path)
    for n in (1, 6):
        given = arguments(n)
        own = [one.clone() for one in given]
        own[0], own[2] = own[0].to(memory_format=torch.channels_last), own[2].mT.contiguous().mT
        with torch.no_grad():
            wanted = model(*given)
        found = library(*own)
        torch.testing.assert_close(found[:-1], [torch.as_tensor(one) for one in wanted[:-1]], rtol=1e-5, atol=1e-5)
        assert found[-1] is None
        torch.testing.assert_close(own[2], given[2])  # written in place, by its own strides
    x, at, y = arguments(2)
    for wrong, said in (
        ((x, at), "(1, 'the program has 3 inputs, not 2')"),
        ((x, at.int(), y), "(1, 'input 1 has the dtype (0, 32, 1), not (0, 64, 1)')"),
        ((x[0], at, y), "(1, 'input 0 has 3 dimensions, not 4')"),
        ((x, at[:1], y), "(2, 'input 1 has the size 1 in dimension 0, not 2')"),
        (arguments(7), "(2, 'batch <= 6 does not hold')"),
        ((x, at + 10, y), "(5, 'an index is out of range')"),
        ((x, at, x.flatten()[1 : 1 + y.numel()].view(y.shape)), "(1, 'input 2, which is written, shares memory with input 0')"),
    ):
        with pytest.raises(RuntimeError) as error:
            library(*wrong)
        assert str(error.value) == said


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_eight_threads_under_a_sanitizer(sanitizer, tmp_path):
    make, at, said = standalone.ALL["everything"]
    torch.manual_seed(0)
    model = make().eval()
    program = pliant.export(model, at(4), dynamic_shapes=said)
    flags = ("-g", f"-fsanitize={sanitizer}")
    pliant.aot_compile(program, tmp_path, interface="standalone", options={"opt_flags": ("-O1", *flags)})
    standalone.caller(tmp_path, flags)
    for n in (3, 1):
        given = at(n)
        results, left, _ = standalone.called(tmp_path, given, threads=8, repeats=20)
        wanted = loops.plainly(model, given)
        assert left == 0 and max(standalone.difference(found, wanted) for found in results) < 1e-5


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_branches_loops_and_recurrent_layers(tmp_path):
    """Each at several sizes, single steps among them; bodies that are one program run at several places."""

    def twice(x, y):
        body = lambda so_far, one: (so_far * 0.5 + one, so_far.sin() @ one.mT)  # noqa: E731
        first, made = loops.scan(body, x[0] * 0, x)
        again, more = loops.scan(body, y[0] * 0, y, reverse=True)
        wide = loops.cond(first.sum() > again.sum(), lambda a, b: (a.double(), b > 0), lambda a, b: (b.double(), a > 0), (first, again))
        _, halved = loops.while_loop(lambda n, a: n < 3, lambda n, a: (n + 1, (a / n).mT.contiguous().mT), (x.new_ones(()), first))
        return made, more, *wide, halved.contiguous(), *ends(x, y)

    def ends(x, y):
        """Some results of layers, of states that are given."""
        lstm, gru = loops.MODELS["lstm"].layer, loops.MODELS["gru"].layer
        states = y.new_ones(4, 1, 6) * y[:, 0, 0][:, None]
        return *(one * 1 for one in lstm(x, (states, states * 2))[1]), gru(x, x.new_ones(1, x.shape[1], 6))[1] * 1, gru(y)[0] * 1

    controls = standalone.ALL["controls"][0]().eval()
    for name, model in (("controls", controls), ("twice", twice)):
        program = pliant.export(model, loops.arguments(3, 5), dynamic_shapes=loops.SAID)
        pliant.aot_compile(program, tmp_path / name, interface="standalone", options={"opt_flags": ("-O1",)})
        library = Library(tmp_path / name)
        for size in loops.SIZES:
            given = loops.arguments(*size)
            torch.testing.assert_close(library(*given), loops.plainly(model, given), rtol=1e-5, atol=1e-5)


class Pure(Small):
    """The same, without a result that is None, and writing nothing."""

    def forward(self, x, at, y):
        return super().forward(x, at, y.clone())[:-1]


@pytest.mark.skipif(
    not all(map(shutil.which, (standalone.ARM_COMPILER, standalone.ARM_RUNNER[0]))),
    reason="gcc-aarch64-linux-gnu and qemu-user are not installed",
)
def test_a_library_for_arm_computes_what_the_model_does(tmp_path):
    torch.manual_seed(0)
    model, batch = Pure().eval(), pliant.Dim("batch", max=6)
    program = pliant.export(model, arguments(4), dynamic_shapes=({0: batch}, {0: batch}, {0: batch}))
    pliant.aot_compile(program, tmp_path, interface="standalone", options=standalone.ARM_OPTIONS)
    standalone.caller(tmp_path, compiler=standalone.ARM_COMPILER)
    given = arguments(3)
    (found, again), left, _ = standalone.called(tmp_path, given, 2, 1, standalone.ARM_RUNNER)
    wanted = standalone.eager(model, given)
    assert left == 0 and standalone.difference(found, wanted) < 1e-5 and standalone.difference(again, wanted) < 1e-5
    with pytest.raises(RuntimeError, match="batch <= 6 does not hold"):
        standalone.called(tmp_path, arguments(7), 1, 1, standalone.ARM_RUNNER)


@pytest.mark.skipif(bool(wasm_module.missing()), reason=f"not installed: {', '.join(wasm_module.missing())}")
def test_a_module_of_webassembly_computes_what_the_model_does(tmp_path):
    torch.manual_seed(0)
    model, batch = Pure().eval(), pliant.Dim("batch", max=6)
    program = pliant.export(model, arguments(4), dynamic_shapes=({0: batch}, {0: batch}, {0: batch}))
    pliant.aot_compile(program, tmp_path, interface="standalone", options=wasm_module.OPTIONS)
    module = wasm_module.Module(tmp_path)
    for rows in (3, 1, 6):
        given = arguments(rows)
        assert standalone.difference(module(*given), standalone.eager(model, given)) < 1e-5
    with pytest.raises(RuntimeError, match="batch <= 6 does not hold"):
        module(*arguments(7))


@pytest.mark.parametrize(
    ("model", "size", "said"),
    [
        (nn.ConvTranspose2d(2, 2, 3), (1, 2, 4, 4), "no loops for a transposed convolution"),
        (nn.Conv3d(2, 2, 1), (1, 2, 3, 3, 3), "no loops for a convolution in 3 dimensions"),
        (torch.linalg.inv, (2, 2), r"no loops for `aten.linalg_inv_ex.default`, called at `.*test_standalone"),
        (torch.nonzero, (2, 2), "no loops for `aten.nonzero.default`"),
        (torch.t, (2, 2), "a view of an argument"),
        (lambda x: loops.shared_numbers(x, x), (2, 2), "no loops for random numbers"),
    ],
)
def test_what_has_no_loops_is_an_error_that_names_it(model, size, said, tmp_path):
    def named(x):
        return model(x)

    program = pliant.export(model if isinstance(model, nn.Module) else named, (torch.ones(size),))
    with pytest.raises(ExportError, match=said):
        pliant.aot_compile(program, tmp_path / "folder", interface="standalone")
    assert not (tmp_path / "folder").exists()


def test_weights_that_are_one_tensor_are_written_once():
    layer = nn.Linear(64, 64, bias=False)
    _, _, content = texts_of(pliant.export(nn.Sequential(layer, nn.ReLU(), layer).eval(), (torch.ones(1, 64),)))
    assert len(content) == layer.weight.nbytes
