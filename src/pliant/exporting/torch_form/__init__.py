"""An exported program as PyTorch's own `torch.export.ExportedProgram`.

converter.py  the one module that uses `torch.export`
call.py       arguments by name, and an example of them
sizes.py      the sizes of arguments as PyTorch's Dims
module.py     a module that is called as the model
run.py        the program's graph on tensors that PyTorch follows
numbers.py    expressions of sizes on PyTorch's symbolic numbers
width.py      what PyTorch asks of sizes that the program does not
refusal.py    the error for what PyTorch's programs cannot say
"""
