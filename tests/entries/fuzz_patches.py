"""What a process does to the program of the fuzzer behind its text: patches, hooks, replaced parts."""

from __future__ import annotations

import types

import torch

import pliant


def _patch(place, name, value):
    setattr(place, name, value)


def _double_forward(self, x):
    return torch.nn.functional.linear(x, self.weight, self.bias) * 2


def apply_patch(program: types.ModuleType, model: torch.nn.Module, name: str) -> None:
    match name:
        case "relu":
            torch.Tensor.relu = torch.Tensor.sigmoid
        case "linear":
            torch.nn.Linear.forward = _double_forward
        case "module":
            program.library.outside = lambda x: x - 1
        case "class":
            program.Part.limit = 7.0
        case "rebound":
            program.helper = program.wrapped
        case "disabled":
            pliant.disable(program.inner)
        case "hook":
            model.parts[0].register_forward_hook(lambda module, args, result: result * 2)
        case "global hook":
            torch.nn.modules.module.register_module_forward_hook(lambda module, args, result: None)
        case "instance":
            model.parts[0].limit = 5.0
        case "bound method":
            model.parts[0].still = lambda x: x + 3
        case "reached":
            program.library.tools.scale = torch.neg
        case "in a dict":
            program.by_name["shift"] = torch.exp
        case "static method":
            program.Part.still = staticmethod(lambda x: x * 3)
        case "keyword default":
            program.inner.__kwdefaults__ = {"shift": 4.0}
        case "closure cell":
            program.closure.__closure__[0].cell_contents = 9.0
        case "default":
            program.inner.__defaults__ = (5.0,)
        case "code":
            program.helper.__code__ = (lambda x: inner(x) - 2).__code__  # noqa: F821
        case _ if name:
            _PATCHES[name](program, model)


def _another_class(program, model):
    model.parts[0].__class__ = type("Other", (program.Part,), {"finish": lambda self, x: x.cos()})


def _add_base(program, model):
    program.Part.__bases__ = (type("Added", (program.Part.__bases__[0],), {"gain": 3.0, "finish": lambda self, x: x - 1}),)


def _register_kind(program, model):
    program.by_kind.register(float, lambda value: value + 11)


def _weight_strides(program, model):
    weight = model.parts[0].linear.weight
    weight.data = weight.data.t().contiguous().t()


def _weight_subclass(program, model):
    weight = model.parts[0].linear.weight
    model.parts[0].linear.weight = torch.nn.Parameter(weight.detach().as_subclass(program.Sub))


def _parametrized(program, model):
    torch.nn.utils.parametrize.register_parametrization(model.parts[0].linear, "weight", torch.nn.Tanh())


def _builtin(program, model):
    program.len = lambda value: 17  # of the module: before the builtin


def _module_call(program, model):
    call = torch.nn.Module.__call__
    torch.nn.Tanh.__call__ = lambda self, x: call(self, x) * 2


def _another_part(program, model):
    model.parts[0] = type(model.parts[0])(model.parts[0].linear.in_features).to(next(model.parameters()).dtype)
    model.parts[0].slope = 4.0


def _delete_method(program, model):
    del program.Part.finish
    program.Part.finish = program.Base.finish


_kept = []


def _aten_kernel(program, model):
    _kept.append(torch.library.Library("aten", "IMPL"))
    _kept[0].impl("cos", lambda x: torch.sin(x), "CPU")


def _halving(cls, function, types, args=(), kwargs=None):
    found = super(program_sub(cls), cls).__torch_function__(function, types, args, kwargs or {})
    return found * 0.5 if function is torch.Tensor.sin else found


def program_sub(cls):
    """The class that the program defines, among the bases of this one."""
    return next(base for base in cls.__mro__ if base.__name__ == "Sub")


_PATCHES = {
    "pre hook": lambda program, model: model.parts[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
    "backward hook": lambda program, model: model.parts[0].register_full_backward_hook(lambda module, grads, given: tuple(g if g is None else g * 2 for g in grads)),
    "parameter hook": lambda program, model: [p.register_hook(lambda grad: grad * 2) for p in model.parameters() if p.requires_grad],
    "global pre hook": lambda program, model: torch.nn.modules.module.register_module_forward_pre_hook(lambda module, args: None),
    "operator of tensors": lambda program, model: setattr(torch.Tensor, "__mul__", torch.Tensor.__add__),
    "functional": lambda program, model: setattr(torch.nn.functional, "gelu", torch.nn.functional.silu),
    "math": lambda program, model: setattr(program.math, "sqrt", program.math.exp),
    "builtin": _builtin,
    "class of a part": _another_class,
    "another part": _another_part,
    "parts reversed": lambda program, model: setattr(model, "parts", torch.nn.ModuleList(reversed(model.parts))),
    "deleted method": _delete_method,
    "found by getattr": lambda program, model: setattr(program.Described, "__getattr__", lambda self, name: 6.0),
    "setattr": lambda program, model: setattr(program.described, "held", 8.0),
    "in the dict of a part": lambda program, model: model.parts[0].__dict__.update(named=torch.sin),
    "weight strides": _weight_strides,
    "weight subclass": _weight_subclass,
    "module call": _module_call,
    "property": lambda program, model: setattr(program.Part, "double", property(lambda self: 12.0)),
    "metaclass": lambda program, model: setattr(program.Meta, "factor", 10.0),
    "registered kind": _register_kind,
    "order": lambda program, model: program.ORDER.reverse(),
    "descriptor": lambda program, model: setattr(program.Descriptor, "__get__", lambda self, obj, owner=None: 13.0),
    "parametrized": _parametrized,
    "added base": _add_base,
    "kernel of an operator": lambda program, model: program.custom.register_kernel("cpu")(lambda x: x - 5),
    "kernel of aten": _aten_kernel,
    "torch function": lambda program, model: setattr(program.Sub, "__torch_function__", classmethod(_halving)),
    "value of a member": lambda program, model: setattr(program.Kind.ONE, "_value_", 7),
    "default of a field": lambda program, model: setattr(program.Settings.__init__, "__defaults__", (0.7, True)),
    "field of an object": lambda program, model: setattr(model.parts[0].settings, "alpha", 0.9),
    "getattr of a module": lambda program, model: setattr(program.library, "__getattr__", lambda name: 9.0),
    "attribute of a module": lambda program, model: setattr(program.library, "absent", 8.0),
    "missing no more": lambda program, model: setattr(program.Described, "missing", 0.75),
    "version of a package": lambda program, model: setattr(program.library, "__version__", "1.3"),
    "version and back": lambda program, model: setattr(program.library, "__version__", "1.0"),
    "environment": lambda program, model: program.os.environ.update(FUZZ_OTHER="3.5"),
    "subclass of a class": lambda program, model: type("Later", (program.Part,), {}),
    "forward": lambda program, model: setattr(model.parts[0], "forward", lambda x: x * 3),
    "hook and away": lambda program, model: model.parts[0].register_forward_hook(lambda module, args, result: result * 2).remove(),
    "apply of a function": lambda program, model: setattr(program.Doubled, "forward", staticmethod(lambda ctx, x: x * 9)),
    "derivative of a function": lambda program, model: setattr(program.Doubled, "backward", staticmethod(lambda ctx, grad: grad * 9)),
    "new": lambda program, model: setattr(program.Made, "by_new", property(lambda self: 15.0, lambda self, value: None)),
    "instance check": lambda program, model: setattr(program.Asked, "__instancecheck__", lambda cls, obj: True),
}
