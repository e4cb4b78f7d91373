"""Kernels that are built side by side: each thread gets as much of the work as another."""

from pliant.cache.key import make_key
from pliant.runtime.cuda.kernels import _programs, statements_of

LOOPS = """\
extern "C" __global__ void pliant_0(const float* a0, float* a1) {
  float t[8];
  #pragma unroll
  for (int u = 0; u < 8; u++) {
    t[u] = a0[u];
    #pragma unroll
    for (int v = 0; v < 4; v++) t[u] += v;
  }
  #pragma unroll 1
  for (int q = 0; q < 100; q++) {
    p_store<8>(a1 + q, t);
  }
}
"""


def test_statements_of_loops_that_are_unrolled_count_as_often_as_they_run():
    plain = LOOPS.replace("  #pragma unroll\n", "")
    assert statements_of(plain) < 40 < statements_of(LOOPS)


def test_statements_of_a_part_of_a_text():
    assert statements_of("}\n}\na = 1;") == 1


def test_programs_are_about_equally_long():
    body = {make_key(number=str(k)): LOOPS * (k + 1) for k in range(7)}
    programs = _programs(body, 3)
    assert sorted(key.digest for keys in programs for key in keys) == sorted(key.digest for key in body)
    lengths = [sum(body[key].count("void") for key in keys) for keys in programs]
    assert max(lengths) - min(lengths) <= 1


def test_one_program_for_each_of_few_kernels():
    assert [len(keys) for keys in _programs({make_key(number="0"): LOOPS}, 8)] == [1]
