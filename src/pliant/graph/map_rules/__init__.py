"""`vmap` and derivatives of operators whose rules in C++ ask for plain sizes: the same in operators that take symbolic ones.

kernels: how rules are called while a `vmap` or the engine runs on fakes. rows: all of them.
places: what reads and writes by indices, and what has a dimension among its arguments.
images: convolutions, pools, paddings, attention: a batch joins the one that they have.
norms, losses: these.
derivatives: what derivatives of derivatives call. tangents: derivatives that are pushed forward.
"""
