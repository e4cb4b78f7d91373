"""Programs as shared libraries that need the C library alone: compiled kernels, and loops of our own for the rest.

- `writer.py`: a program as C text: sizes, memory, calls in order.
- `control.py`: branches and loops in it.
- `operators.py`: which operators have a C function.
- `library.py`: that text, the kernels, the runtime and the weights as files.
- `runtime.c`, `runtime.h`: handles, arguments, results, threads; `products.c`, `operators.h`: products, convolutions, pools;
  `pliant_standalone.h`: what callers include.
"""
