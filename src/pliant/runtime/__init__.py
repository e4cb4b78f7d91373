"""Building, loading and calling kernels: `compile_graph.py` leads from an ATen graph to a function that runs it."""
