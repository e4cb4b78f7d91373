"""Building, loading and calling kernels: `compile_graph.py` leads from an ATen graph to a function that runs it, which
`program.py` makes of built code, also of code that is found on disk. `objects.py` compiles once what kernels they have in
common, `auxiliary.py` native functions that few of them call."""
