"""The Python function around a graph's kernels as it runs: loaded wherever compiled code runs, whoever compiled it.

`wrapper` makes it of its text and has what the text calls; `generated_code` runs the texts that the compiler wrote; `profiled` is the text while a profiler records;
`large_buffers` and `vector_math` ask the system for large pages and the C library's vector functions.
`launches` has the tables that a GPU's kernels are launched from, and the native function that reads them;
`entering` the one for entries of the host's graphs; both are part of, or beside, `shared_text`, which all native code shares, with
`bernoulli` (random numbers as PyTorch draws them) and `fingerprint` (of tensors). `remade`: callables that know how they were made.
"""
