"""Programs ahead of time: one graph of a model that says all, and files that other processes run.

dims.py         what a user says about sizes: `Dim`, derived sizes, `AUTO`, `STATIC`
example.py      the call that a program is exported with
residues.py     facts of quotients and remainders as facts that Dims say
symbols.py      one symbol for each Dim, and what Dims say of one another
constraints.py  what a program needs beyond what was said, and what to say instead
spelled.py      `dynamic_shapes` as text
capture.py      `export`: from a model to a program
training.py     a model's call with the gradients of its loss
settled.py      attributes that every call stores alike
assemble.py     from the stages' results to a program
program.py      `Program`: the graph, its signature, its state
exported.py     `Exported`: the program with what can be done with it
checking.py     the check of a call's arguments
running.py      a call: by operators, or compiled
segments.py     reductions of segments in a form whose kernel checks
written_back.py the graph that writes mutated inputs
nested.py       bodies of branches and loops as graphs
values.py       values of a graph as JSON
trees.py        trees of arguments and results, objects in them, and as JSON
control_form.py  branches, loops and recurrent layers as JSON
form.py         the form of files: names, versions, upgrades
writing.py      a program to a file
reading.py      a program from a file
allowed.py      operators of ATen that any file may call
unchecked.py    operators that a file may call only with what they were made for
loading.py      `load`: with what can be done with it, and compiled code
package.py      files with compiled kernels
processors.py   the machines that kernels are for
unpacked.py     a loaded program that runs kernels
weights.py      other weights for a program
onnx_form/      ONNX models
torch_form/     PyTorch's own exported programs
c_interface/    a shared library that C programs without Python call
transforms.py   passes over a program, and the check after each
core_operators.py  the operators that remain
decompositions.py  operators by others
hierarchy.py    a module with a program's parameters at their names
differences.py  how two programs differ
text.py         the program as Python text
"""
