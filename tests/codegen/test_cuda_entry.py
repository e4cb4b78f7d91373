"""Entries of kernels of GPUs: what is launched with which arguments, seen through a launcher that runs C on the CPU."""

from dataclasses import replace

import pytest
import torch

import cpu_launcher
from pliant.codegen.cuda.entry import DeviceCode, write_native
from pliant.codegen.cuda.kernel_text import DeviceKernel
from pliant.errors import CompileError, InternalError
from pliant.ir.loops import Buffer
from pliant.runtime.cuda.load import Launcher, load
from pliant.symbolic.expr import ONE, ZERO, lit, symbol
from pliant.symbolic.rules.division import floordiv
from pliant.symbolic.rules.extrema import minimum
from pliant.symbolic.traverse import evaluate

CPU = torch.device("cpu")
N = symbol("n")
X = symbol("x", float)

HEAD = "unsigned x, unsigned y, unsigned z, unsigned threads, unsigned shared, void** a"
# out[0..] = what it was launched with, then its numbers; `in` is copied behind.
NOTE = f"""\
int @_run({HEAD}) {{
  double* out = *(double**)a[0];
  const double* in = *(const double**)a[1];
  const long long n = *(const long long*)a[2];
  const double f = *(const double*)a[3];
  double noted[] = {{x, y, z, threads, shared, n, f, in[0]}};
  for (int k = 0; k < 8; k++) out[k] = noted[k];
  return 0;
}}
"""
ADD = f"int @_run({HEAD}) {{ double* out = *(double**)a[0]; *out = *out * 10 + *(const long long*)a[1] + x * 100; return 0; }}\n"


def buffer(name: str) -> Buffer:
    return Buffer(name, torch.float64, (ONE * 8,), (ONE,), CPU, "input")


def kernel(text, buffers, sizes, blocks, threads=32, shared=0) -> DeviceKernel:
    return DeviceKernel(
        text, "// src a node\n", tuple(buffers), tuple(sizes), tuple(blocks), lit(threads), shared, frozenset(), ZERO
    )


def written(*runs, listed=None, hints=None) -> DeviceCode:
    return write_native(runs, listed or {}, lambda text: "/* prelude */\n", hints or {})


def loaded(code):
    return load(code, cpu_launcher.launcher())


def test_arguments_and_grid():
    out, given = buffer("out"), buffer("given")
    code = written([kernel(NOTE, [out, given], [N, X], [floordiv(N + 255, ONE * 256), ONE * 2, N], threads=64, shared=9000)])
    (entry,) = code.entries
    assert entry.buffers == (out, given) and entry.sizes[:2] == (N, X)
    numbers = {N: 1000, X: 0.25, entry.sizes[2]: 4}
    (launch,) = loaded(code)
    noted = torch.zeros(8, dtype=torch.float64)
    assert launch(noted, torch.full((8,), 7.0, dtype=torch.float64), *(numbers[s] for s in entry.sizes), 5) is None
    assert noted.tolist() == [4, 2, 1000, 64, 9000, 1000, 0.25, 7]
    assert cpu_launcher.calls().test_stream(cpu_launcher.calls().test_launched() - 1) == 5


def test_launches_in_order_and_none_of_an_empty_grid():
    out = buffer("out")
    run = [kernel(ADD, [out], [ONE * k], [N if k == 2 else ONE, ONE, ONE]) for k in (1, 2, 3)]
    code = written(run)
    assert code.kernels == 1 and code.entries[0].sizes == (N,)
    (launch,) = loaded(code)
    for blocks, expected in ((1, ((101 * 10) + 102) * 10 + 103), (0, 101 * 10 + 103)):
        total = torch.zeros(8, dtype=torch.float64)
        launch(total, blocks, 0)
        assert total[0] == expected


def test_inputs_read_from_the_list():
    buffers = [buffer(f"b{k}") for k in range(4)]
    listed = {buffers[0]: 5, buffers[3]: 2}
    code = written([kernel(ADD, [b], [ONE * 7], [ONE * k, ONE, ONE]) for k, b in enumerate(buffers, 1)], listed=listed)
    (entry,) = code.entries
    assert entry.reads_list and entry.buffers == (buffers[1], buffers[2])
    (launch,) = loaded(code)
    tensors = [torch.zeros(8, dtype=torch.float64) for _ in range(8)]
    launch(tensors, tensors[0], tensors[1], 0)
    assert [t[0].item() for t in tensors] == [207, 307, 407, 0, 0, 107, 0, 0]


def test_equal_texts_are_one_function_across_runs():
    a, b = buffer("a"), buffer("b")
    runs = [[kernel(ADD, [a], [ONE], [ONE, ONE, ONE])], [kernel(ADD, [b], [N], [ONE, ONE, ONE], shared=64)]]
    code = written(*runs)
    assert code.kernels == 1 and code.functions[0].shared == 64
    assert code.functions[0].name == written(runs[1]).functions[0].name
    assert [entry.name for entry in code.entries] == ["launch0", "launch1"]
    assert code.texts[0].startswith("/* prelude */\n// src a node\nint pliant_")


def test_a_failed_launch_raises():
    (launch,) = loaded(written([kernel(ADD, [buffer("a")], [ONE], [ONE, ONE, ONE])]))
    with pytest.raises(RuntimeError, match=r"a kernel could not be launched: .*719"):
        launch(torch.zeros(8, dtype=torch.float64), cpu_launcher.FAILING)


@pytest.mark.parametrize("arguments", [(torch.zeros(8), "a", 0), (torch.zeros(8), 1 << 70, 0), (3, 1, 0)])
def test_wrong_arguments_raise(arguments):
    before = cpu_launcher.calls().test_launched()
    (launch,) = loaded(written([kernel(ADD, [buffer("a")], [N], [ONE, ONE, ONE])]))
    with pytest.raises((TypeError, OverflowError, ValueError, AttributeError, RuntimeError)):
        launch(*arguments)
    assert cpu_launcher.calls().test_launched() == before


def test_grids_that_are_too_wide():
    a = buffer("a")
    with pytest.raises(InternalError, match="65536 blocks where 65535 are allowed"):
        written([kernel(ADD, [a], [ONE], [ONE, ONE * 65536, ONE])])
    (launch,) = loaded(written([kernel(ADD, [a], [ONE], [N, ONE, ONE])]))
    for blocks in (1 << 31, -1):
        with pytest.raises(RuntimeError, match="more blocks than a GPU allows"):
            launch(torch.zeros(8, dtype=torch.float64), blocks, 0)


def test_blocks_that_are_too_large():
    a = buffer("a")
    with pytest.raises(InternalError, match="1056 threads where 1024 are allowed"):
        written([replace(kernel(ADD, [a], [ONE], [ONE, ONE, ONE]), threads=lit(1056))])


def test_one_run_is_of_one_device():
    other = Buffer("other", torch.float64, (ONE,), (ONE,), torch.device("cuda", 0), "input")
    with pytest.raises(InternalError, match=r"a run of kernels has tensors on \['cpu', 'cuda:0'\]"):
        written([kernel(ADD, [buffer("a"), other], [], [ONE, ONE, ONE])])


def test_a_thousand_launches():
    out = buffer("out")
    texts = [ADD.replace("* 10 +", f"* 0 + {k % 3} * 0 +") for k in range(3)]
    (launch,) = loaded(written([kernel(texts[k % 3], [out], [ONE * k], [ONE, ONE, ONE]) for k in range(1000)]))
    total = torch.zeros(8, dtype=torch.float64)
    launch(total, 0)
    assert total[0] == 999 + 100


def counting_launcher(built: list[list[str]]) -> Launcher:
    """Notes which kernels are built together."""
    plain = cpu_launcher.launcher()

    def functions(code: DeviceCode) -> list[int]:
        built.append([one.text.split("x * ")[1].split(";")[0] for one in code.functions])
        return plain.functions(code)

    return replace(plain, functions=functions)


def by_length(out: Buffer) -> list[DeviceKernel]:
    """Kernels for rows of up to 100 elements, up to 200, and of more: each notes who it is."""
    above = [ONE, minimum(ONE, floordiv(N, lit(101))), minimum(ONE, floordiv(N, lit(201)))]
    meant = [1 - above[1], above[1] * (1 - above[2]), above[2]]
    return [kernel(ADD.replace("x * 100", f"x * {k}"), [out], [ONE * 0], [blocks, ONE, ONE]) for k, blocks in enumerate(meant, 1)]


def numbers_of(code: DeviceCode, run: int, length: int) -> list[int]:
    return [int(evaluate(s, {N: length})) for s in code.entries[run].sizes]


def test_kernels_that_the_sizes_at_hand_do_not_launch_are_built_when_one_is():
    built: list[list[str]] = []
    out, other = buffer("out"), buffer("other")
    again = kernel(ADD.replace("x * 100", "x * 7"), [other], [ONE * 0], [minimum(ONE, floordiv(N, lit(101))), ONE, ONE])
    code = written(by_length(out), [again], hints={N: 50})
    assert [one.expected for one in code.functions] == [True, False, False, False]
    first, second = load(code, counting_launcher(built))
    noted, there = (torch.zeros(8, dtype=torch.float64) for _ in range(2))
    first(noted, *numbers_of(code, 0, 60), 0)
    second(there, *numbers_of(code, 1, 60), 0)
    assert built == [["1"]] and (noted[0], there[0]) == (1, 0)
    for length in (150, 250, 60):
        first(noted, *numbers_of(code, 0, length), 0)
        second(there, *numbers_of(code, 1, length), 0)
    assert built == [["1"], ["2", "3", "7"]]  # together, and once
    assert (noted[0], there[0]) == (1231, 77)


def test_a_size_that_only_running_tells_may_launch_any_kernel():
    code = written(by_length(buffer("out")))
    assert all(one.expected for one in code.functions)


def test_a_kernel_that_cannot_be_built_later_raises_and_is_tried_again():
    plain, refused = cpu_launcher.launcher(), [True]

    def functions(code: DeviceCode) -> list[int]:
        if refused and not code.functions[0].expected:
            refused.clear()
            raise CompileError("refused")
        return plain.functions(code)

    code = written(by_length(buffer("out")), hints={N: 50})
    (launch,) = load(code, replace(plain, functions=functions))
    noted = torch.zeros(8, dtype=torch.float64)
    with pytest.raises(CompileError, match="refused"):
        launch(noted, *numbers_of(code, 0, 150), 0)
    launch(noted, *numbers_of(code, 0, 150), 0)
    assert noted[0] == 2
