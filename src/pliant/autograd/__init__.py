"""A captured program and its gradient: one functional ATen graph, split so that little is saved, under torch's engine.

Tracing:              joint, run_module, functionalize (views and writes become values), call_kinds, aliases, functional_ops, scatter,
                      pooling, expand, segments (programs that must be cut), tails (sums made again behind a cut), history, small_programs (called as they
                      are), repeats and repeated (equal parts), layers (equal ones, compiled once), buckets (gradients that travel), program_keys,
                      copies_in_doubt (copies that are views at some sizes), regions (views with no element in common),
                      casts (of autocast, around forward and backward).
Splitting:            partition/.
Running:              runtime, forward and training compile; calls, endings, around, trained, function, node, tangent_layouts, result_hooks, leaf_hooks,
                      outputs, places, views and saved_memory run, also what is found on disk, and load
                       no compiler; aliasing (what the caller gets, related as in eager),
                      higher_order, kept_inputs, saved (what eager's autograd
                      keeps), wanted (whether a gradient is needed), refused (whether it is an error).
"""
