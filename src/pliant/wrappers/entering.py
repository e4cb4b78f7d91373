"""C that runs an entry which is a table, built once for all graphs: a compiler reads tables faster than functions.

Out:    `ENTER`: `p_enter`, part of the unit of what graphs share; `HEAD`: how many numbers a table begins with.
Holds:  what `p_enter` does is what `codegen.native` writes for an entry of its own. A table is the numbers of `HEAD`, then
        places in the list of inputs, places on the stack, whether a number is a float, and the calls, each the place of its
        kernel, how many tensors and numbers it takes, and their places.
"""

from __future__ import annotations

# How many tensors are listed, passed and on the stack, bytes of the stack, how many numbers and constants, when the GIL is
# released (a place in the numbers, or one of these), most tensors and numbers of a call, how many calls.
HEAD = 10
NEVER, ALWAYS = -2, -1
RELEASE_GIL = 1 << 16  # points of a run from which on the GIL is released
ALIGN = 64  # bytes, of what is on the stack

ENTER = f"""\
typedef void (*p_kernel)(void**, const int64_t*, int32_t*);
PyObject* p_enter(PyObject* const* args, const int32_t* c, const int64_t* constants, const p_kernel* kernels) {{
  const int32_t listed = c[0], passed = c[1], own = c[2], numbers = c[4], fixed = c[5], release = c[6], calls = c[9];
  void *b[listed + passed + own + 1], *p[c[7] + 1];
  int64_t n[numbers + fixed + 1], q[c[8] + 1];
  char* const scratch = own ? __builtin_alloca_with_align(c[3], {8 * ALIGN}) : 0;
  int32_t error = 0;
  c += {HEAD};
  if (listed && p_listed(*args++, c, listed, b)) return 0;
  if (p_addresses(args, passed, b + listed)) return 0;
  args += passed;
  c += listed;
  for (int k = 0; k < own; k++) b[listed + passed + k] = scratch + c[k];
  c += own;
  for (int k = 0; k < numbers; k++) {{
    if (c[k]) {{
      const double x = PyFloat_AsDouble(args[k]);
      __builtin_memcpy(n + k, &x, 8);
    }} else n[k] = PyLong_AsLongLong(args[k]);
  }}
  if (numbers && PyErr_Occurred()) return 0;
  c += numbers;
  for (int k = 0; k < fixed; k++) n[numbers + k] = constants[k];
  void* const state = release == {ALWAYS} || (release >= 0 && n[release] > {RELEASE_GIL}) ? PyEval_SaveThread() : 0;
  for (int k = 0; k < calls; k++) {{
    const int32_t kernel = c[0], tensors = c[1], given = c[2];
    c += 3;
    for (int m = 0; m < tensors; m++) p[m] = b[*c++];
    for (int m = 0; m < given; m++) q[m] = n[*c++];
    kernels[kernel](p, q, &error);
  }}
  if (state) PyEval_RestoreThread(state);
  if (error) {{ PyErr_SetString(PyExc_IndexError, "index out of range in self"); return 0; }}
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}}
"""
