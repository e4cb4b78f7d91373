"""Kernels as CUDA C, and the native entries that launch them.

kernel_text (what a kernel is to the entry), entry (what is launched with which arguments).
"""
