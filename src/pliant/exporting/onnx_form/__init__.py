"""Programs as ONNX models, for other runtimes.

writer.py      a program to a model: inputs, weights, sizes, results
operators.py   the table: an ATen operator's ONNX operators
images.py      its rows of convolutions, norms of groups, other resolutions
windows.py     its rows of pools, windows as columns, largest elements
formulas.py    its rows of arithmetic, losses, truths
places.py      its rows of scattered values, masks, borders, samples
measures.py    its rows of distances, rows of a table, derivatives, angles
control.py     branches, loops, recurrent layers
selections.py  its rows of indices, largest elements, products of groups
"""
