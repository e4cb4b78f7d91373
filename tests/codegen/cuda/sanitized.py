"""Replay launches of kernels in a program of their own, built with AddressSanitizer: each buffer is as long as it is.

python -m codegen.cuda.sanitized [NAME ...]     # rows of the operator table, all by default
"""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence

from codegen.cuda import shim
from codegen.cuda.operators import samples
from ops.samples import ROWS

FLAGS = ("-g", "-fsanitize=address,bounds", "-fno-sanitize-recover=all", "-DP_EXACT_READS")

# The file of launches: for each the kernel, its threads and grid, its numbers, and its buffers with their lengths.
_MAIN = """\
#include <stdio.h>
int main(int count, char** given) {
  FILE* file = fopen(given[1], "rb");
  int64_t head[7];
  while (fread(head, sizeof head, 1, file) == 1) {
    int64_t* n = (int64_t*)malloc(8 * head[5]);
    void** p = (void**)malloc(8 * head[6]);
    if (fread(n, 8, head[5], file) != (size_t)head[5]) return 2;
    for (int k = 0; k < head[6]; k++) {
      int64_t bytes;
      if (fread(&bytes, 8, 1, file) != 1) return 2;
      p[k] = malloc(bytes);
      if (bytes && fread(p[k], bytes, 1, file) != 1) return 2;
    }
    const unsigned grid[3] = {(unsigned)head[2], (unsigned)head[3], (unsigned)head[4]};
    fprintf(stderr, "k%d\\n", (int)head[0]);
    if (functions[head[0]](p, n, grid, head[1])) return 3;
    for (int k = 0; k < head[6]; k++) free(p[k]);
    free(n), free(p);
  }
  return 0;
}
"""


def recorded(run: Callable[[], None]) -> list[shim.Call]:
    """The launches of what `run` does."""
    shim.calls = found = []
    try:
        run()
    finally:
        shim.calls = None
    return found


def replay(calls: Sequence[shim.Call]) -> None:
    """Launch again under AddressSanitizer; AssertionError with its report."""
    kernels = list({c.kernel.text: c.kernel for c in calls}.values())
    place = {k.text: n for n, k in enumerate(kernels)}
    names = ", ".join(f"run_k{n}" for n in range(len(kernels)))
    table = f"static int (*functions[])(void**, const int64_t*, const unsigned*, unsigned) = {{{names}}};"
    program = shim.compiled("\n".join([shim.source_of(kernels), table, _MAIN]), FLAGS)
    data = program.with_suffix(".data")
    with data.open("wb") as file:
        for c in calls:
            head = (place[c.kernel.text], c.threads, *c.grid, len(c.numbers), len(c.memory))
            file.write(struct.pack(f"{7 + len(c.numbers)}q", *head, *c.numbers))
            file.writelines(struct.pack("q", len(m)) + m for m in c.memory)
    options = {"ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0"}
    done = subprocess.run([program, data], capture_output=True, text=True, env=options)
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line[:1] == "k" and line[1:].isdigit()][-1]
        raise AssertionError(f"{done.stderr[-3000:]}\n{kernels[int(last[1:])].text}")


def of_operators(names: Iterable[str] = ROWS, every: int = 1) -> list[shim.Call]:
    """Launches of samples of the operator table, with fixed and with symbolic sizes."""
    found = [s for symbolic in (False, True) for s in samples(names, symbolic=symbolic, every=every)]
    shim.prepare([kernel for sample in found for kernel in sample.device.kernels])
    return recorded(lambda: [sample.check() for sample in found] and None)


if __name__ == "__main__":
    launches = of_operators(sys.argv[1:] or ROWS)
    replay(launches)
    print(f"{len(launches)} launches")
