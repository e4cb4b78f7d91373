"""PyTorch's own constructs: parameters made inside, inference mode, overrides of functions, generators, NumPy's arrays."""

import copy

import numpy
import torch
from tests.capture.constructs.harness import program
from torch import nn
from torch.overrides import TorchFunctionMode

AREA = "torch"
LAYER = nn.Linear(4, 4)
GENERATOR = torch.Generator()
TABLE = numpy.arange(4.0, dtype=numpy.float32)


class Tagged(torch.Tensor):
    factor = 3

    def times(self, n):
        return self * n


class Swapping(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.sin:
            func = torch.cos
        return super().__torch_function__(func, types, args, kwargs or {})


class Duck:
    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(*[a.tensor if isinstance(a, Duck) else a for a in args], **(kwargs or {}))


class Counting(TorchFunctionMode):
    def __init__(self):
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


class Multiplying(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (torch.mul if func is torch.add else func)(*args, **(kwargs or {}))


@program(AREA)
def parameter_made_inside(x, y):
    weight = nn.Parameter(torch.ones(4))
    return x * weight, weight.requires_grad


@program(AREA)
def parameter_returned(x, y):
    weight = nn.Parameter(torch.ones(4))
    return weight, (x * weight).sum()


@program(AREA)
def parameter_without_gradient(x, y):
    return nn.Parameter(x.detach(), requires_grad=False) + 1


@program(AREA)
def layer_made_inside(x, y):
    layer = nn.Linear(4, 2, bias=False)
    nn.init.ones_(layer.weight)
    return layer(x)


@program(AREA)
def module_class_made_inside(x, y):
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.full((4,), 2.0))

        def forward(self, x):
            return x * self.weight

    return Scale()(x)


@program(AREA)
def parameters_in_containers(x, y):
    table = nn.ParameterDict({"a": nn.Parameter(torch.ones(4))})
    rows = nn.ParameterList([nn.Parameter(torch.ones(4))])
    return x * table["a"] + rows[0]


@program(AREA)
def state_loaded_inside(x, y):
    layer = nn.Linear(4, 4)
    layer.load_state_dict(LAYER.state_dict())
    return layer(x)


@program(AREA)
def layer_copied_deeply(x, y):
    return copy.deepcopy(LAYER)(x)


@program(AREA)
def tensor_copied(x, y):
    return copy.copy(x) + 1, copy.deepcopy(y)


@program(AREA)
def requires_grad_assigned(x, y):
    weight = torch.ones(4)
    weight.requires_grad = True
    return (x * weight).requires_grad


@program(AREA)
def parameters_averaged(x, y):
    average = [torch.zeros(4, 4), torch.zeros(4)]
    for old, new in zip(average, LAYER.parameters()):
        old.mul_(0.9).add_(new.detach(), alpha=0.1)
    return average


@program(AREA)
def inference_mode_block(x, y):
    with torch.inference_mode():
        z = x * 2
    return y + 1, z.requires_grad


@program(AREA)
def inference_mode_nested(x, y):
    with torch.inference_mode():
        with torch.inference_mode(False):
            inner = torch.is_grad_enabled()
        outer = torch.is_inference_mode_enabled()
    return x, inner, outer, torch.is_inference_mode_enabled()


@program(AREA)
def inference_mode_decorator(x, y):
    @torch.inference_mode()
    def inner(a):
        return (a * 2).sum().item()

    return x * inner(y)


@program(AREA)
def inference_mode_around_print(x, y):
    with torch.inference_mode():
        print("inside")
        z = x + 1
    return z * 2


@program(AREA)
def tensor_of_a_subclass(x, y):
    return x.as_subclass(Tagged) * 2


@program(AREA)
def method_of_a_subclass(x, y):
    return x.as_subclass(Tagged).times(Tagged.factor)


@program(AREA)
def subclass_is_kept(x, y):
    z = torch.relu(x.as_subclass(Tagged))
    return isinstance(z, Tagged), type(z) is Tagged, z.shape


@program(AREA)
def override_of_a_function(x, y):
    return torch.sin(x.as_subclass(Swapping))


@program(AREA)
def override_in_place(x, y):
    z = x.as_subclass(Swapping)
    z.add_(1)
    return z


@program(AREA)
def override_by_another_class(x, y):
    return torch.add(Duck(x), y), torch.sin(Duck(y))


@program(AREA)
def overrides_switched_off(x, y):
    with torch._C.DisableTorchFunctionSubclass():
        return torch.sin(x.as_subclass(Swapping)).as_subclass(torch.Tensor)


@program(AREA)
def function_mode(x, y):
    with Multiplying():
        z = torch.add(x, y)
    return z, torch.add(x, y)


@program(AREA)
def function_modes_nested(x, y):
    with Counting() as counting, Multiplying():
        z = torch.add(x, y)
    return z, counting.count


@program(AREA, whole=False)
def function_mode_around_a_break(x, y):
    with Multiplying():
        z = torch.add(x, y)
        if z.sum() > 1000:
            z = torch.add(z, y)
    return z


@program(AREA)
def device_block(x, y):
    with torch.device("meta"):
        shape = torch.ones(2, 3)
    return shape.device.type, torch.ones(1).device.type


@program(AREA, whole=False)
def device_block_around_a_break(x, y):
    with torch.device("meta"):
        if x.sum() > 1000:
            return y
        shape = torch.ones(2)
    return shape.device.type, torch.ones(1).device.type


@program(AREA)
def generator_made_inside(x, y):
    generator = torch.Generator()
    return torch.rand(3, generator=generator)


@program(AREA)
def generator_seeded(x, y):
    generator = torch.Generator().manual_seed(4)
    return torch.randn(3, generator=generator), torch.randperm(4, generator=generator)


@program(AREA)
def generator_from_outside_seeded(x, y):
    GENERATOR.manual_seed(7)
    return torch.rand(2, generator=GENERATOR)


@program(AREA)
def array_of_a_tensor(x, y):
    return x.numpy() + 1


@program(AREA)
def tensor_of_an_array(x, y):
    return torch.from_numpy(numpy.sin(x.numpy()))


@program(AREA)
def array_from_outside(x, y):
    return TABLE * 2, TABLE.shape, x * torch.from_numpy(TABLE)


@program(AREA)
def array_shares_memory(x, y):
    x.numpy()[0] = 5
    return x


@program(AREA)
def array_reductions(x, y):
    a = x.numpy()
    return a.sum(), a.mean(axis=0), numpy.max(a, axis=1), a.argmax(), numpy.linalg.norm(a)


@program(AREA)
def array_shapes(x, y):
    a = x.numpy()
    return a.T, a.reshape(2, -1), a[None].shape, a.ndim, a.size, a.dtype, a.nbytes, numpy.expand_dims(a, 0)


@program(AREA)
def array_indices(x, y):
    a = x.numpy()
    return a[0], a[:, 1], a[..., -1], a[0, 1], a[[0, 1]], a[a > 0]


@program(AREA)
def array_operators(x, y):
    a, b = x.numpy(), y.numpy()
    return a + b, a @ b.T, -a, a > b, 2 - a, a.astype(numpy.int64) // 2


@program(AREA)
def array_element_functions(x, y):
    a = abs(x.numpy())
    return numpy.exp(a), numpy.sqrt(a), numpy.where(a > 1, a, 0), numpy.clip(a, 0, 1), numpy.maximum(a, y.numpy())


@program(AREA)
def arrays_made(x, y):
    return numpy.zeros(3), numpy.arange(4) / 2, numpy.eye(2), numpy.linspace(0, 1, 3), numpy.array([1.5, 2])


@program(AREA)
def arrays_joined(x, y):
    a, b = x.numpy(), y.numpy()
    return numpy.concatenate([a, b]), numpy.stack((a, b)), numpy.split(a, 2, axis=1), numpy.repeat(a, 2, 0)


@program(AREA)
def array_scalars(x, y):
    mean = x.numpy().mean()
    return mean * 2, type(mean) is numpy.float32, mean.dtype, float(mean), numpy.float32(2.5) * x.shape[1]


@program(AREA)
def array_items(x, y):
    a = x.numpy()
    return a[0, 1].item(), a.tolist(), [row.sum() for row in a]


@program(AREA)
def array_output_argument(x, y):
    out = numpy.empty_like(TABLE)
    numpy.add(TABLE, 1, out=out)
    return out


@program(AREA)
def array_as_index(x, y):
    return x[numpy.array([0, 2])], x[numpy.int64(1)]


@program(AREA)
def array_facts(x, y):
    a = x.numpy()
    return (
        isinstance(a, numpy.ndarray),
        a.dtype == numpy.float32,
        a.dtype.name,
        numpy.issubdtype(a.dtype, numpy.floating),
    )


@program(AREA, whole=False)
def branch_on_an_array(x, y):
    return x if x.numpy().sum() > 0 else y


@program(AREA)
def array_function_without_a_namesake(x, y):
    return numpy.histogram(x.numpy(), bins=3)


@program(AREA, whole=False)
def element_function_in_python(x, y):
    return x.clone().apply_(lambda v: v + 1)


@program(AREA)
def vmap_with_numbers(x, y):
    return torch.vmap(lambda a: a.sum() * 2)(x), torch.vmap(lambda a: a.mean() + 1.5)(y)


@program(AREA)
def vmap_nested(x, y):
    return torch.vmap(torch.vmap(lambda a: a * 2))(x)


@program(AREA)
def batch_norm_that_averages(x, y):
    norm = nn.BatchNorm1d(4, momentum=None, affine=False)
    norm(x)
    return norm(y), norm.running_mean, norm.running_var, norm.num_batches_tracked


@program(AREA)
def classes_of_tensors_called(x, y):
    return torch.Tensor([1, 2]), torch.LongTensor([3]), torch.FloatTensor([[1.0]]), torch.Tensor(2, 3).shape


@program(AREA)
def new_tensors_of_a_size_or_of_data(x, y):
    half = x.new(torch.Size([x.shape[0], 2]))
    return x.new(x.shape).zero_(), x.new(x.shape[1:]).zero_(), half.shape, x.new((5, 4)), x.new(3, 2).shape, x.new()


@program(AREA)
def index_in_a_tensor(x, y):
    return x[torch.tensor(0)], x[torch.tensor(1), 2], x.flatten()[y.argmax()]


@program(AREA)
def floor_division_in_place(x, y):
    x //= 2
    return x


@program(AREA)
def bytes_of_a_tensor(x, y):
    return x * x.nbytes, y.itemsize, y.element_size()


@program(AREA, whole=False)
def memory_through_dlpack(x, y):
    return torch.from_dlpack(x) + 1


@program(AREA, whole=False)
def dual_tensors(x, y):
    import torch.autograd.forward_ad as forward_ad

    with forward_ad.dual_level():
        return forward_ad.unpack_dual(torch.sin(forward_ad.make_dual(x, y))).tangent
