"""Kernels as C text, and the Python function that calls them.

c, native (kernels and entries) and units (translation units), forms (equal kernels are written once), sharing (kernels that
differ in numbers), interleaved (two kernels in one, by blocks of rows), kernel_writer, points_writer, scan_writer and
reducing_writer (loops and statements), loops, joined_rows, divided_rows, pairs and unroll_and_jam (which loops), reductions, expressions,
c_text (types, constants, operators), prelude, float_functions, fast_functions, gamma_functions, float_tables, trigonometry,
inverse_trigonometry, vector_remainders and vector_powers (C snippets); vectors, spaced_vectors and vector_memory (types and
primitives), vector_statements, vector_reductions, vector_passes and whole_vectors (loops on explicit vectors, and which are
needed); wrapper (the Python side), plain_forms (what its calls cost), profiled (names for profilers), large_buffers;
bernoulli (random numbers as PyTorch draws them), fingerprint (of texts).
"""
