"""Writes the library that the callers beside this file use: `python make.py folder`."""

import sys

import torch

import pliant

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).eval()
program = pliant.export(model, (torch.randn(3, 8),), dynamic_shapes=({0: pliant.Dim("batch")},))
pliant.aot_compile(program, sys.argv[1], interface="standalone")
