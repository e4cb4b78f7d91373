"""Kernels as CUDA C, and the table from which a native function launches them.

kernel_text (what a kernel is to the entry); writer (a kernel's text), plan (which threads take which points),
device_writer (all kernels), reducing (those that reduce), scanning (those that scan), tiles (those that turn arrays),
windows (those of windows over images, of which copies chooses how many a thread takes; rerolled: their sums as loops),
tables (those that add up in few elements), statements (accesses to memory), tile (the points of one thread),
accumulators (reductions), prelude (CUDA C snippets); parameters (kernels alike as one), rows (launches of one as one); entry (the host's side).
"""
