"""Which loop nests become one kernel, in which order they run, and where their buffers lie: `schedule.py` is the pass.

moments (sums of squares in the pass that sums), split (of reductions), fast_scalars (of the option `numerics`), divided (loops
over groups), rows_apart (two dimensions in one loop), known_values (of outer loops, which inner ones compute too) change
programs and kernels; fuse (which computations are one kernel, asked of align, dependencies, sizes and row_blocks), order and
memory, with run_ends and scratch (buffers on a stack), lay out what runs; kernel is what comes of it.
in_place (large inputs written where places of them change, asked of regions and indexed_writes) and repeated_heads
(attention reads shared keys where they lie) change programs first.
windows (which loops read much of the same) says of which points a thread takes several.
costs (bytes and operations of steps) and told (steps as rows) are for who shows them.
"""
