"""The machines that kernels are written for, as data: every number that belongs to one.

target (the type, and which device has which), cpu, cuda.
"""
