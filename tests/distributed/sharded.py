"""Programs whose parameters or arguments are shared out among processes: FSDP2, tensor parallelism, DTensor; and copies of a
model that sum their gradients up."""

import traceback

import torch
from tests.distributed import devices
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import pliant


def _eager(program):
    return program


def _model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)).to(devices.current())


def _trained(model, x):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for step in range(3):
        loss = (model(x + step) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def _input(rank):
    return torch.arange(32.0, device=devices.current()).reshape(4, 8) / 10 + rank


def _fully_sharded(compile, rank, layers=True):
    model = _model()
    for layer in model if layers else ():
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    return _trained(compile(model), _input(rank))


def fsdp(compile, rank):
    return _fully_sharded(compile, rank)


def fsdp_compiled_in_place(compile, rank):
    return _fully_sharded(lambda model: model if compile is _eager else pliant.compile_(model), rank)


def fsdp_of_the_root_alone(compile, rank):
    return _fully_sharded(compile, rank, layers=False)


def data_parallel(compile, rank, **options):
    return _trained(compile(DistributedDataParallel(_model(), **options)), _input(rank))


def data_parallel_around(compile, rank):
    return _trained(DistributedDataParallel(compile(_model())), _input(rank))


def data_parallel_of_fixed_graphs(compile, rank):
    return data_parallel(compile, rank, static_graph=True, gradient_as_bucket_view=True)


def data_parallel_that_looks_for_parameters(compile, rank):
    return data_parallel(compile, rank, find_unused_parameters=True)


def data_parallel_at_times(compile, rank):
    """Gradients of two calls are added, and summed up at the second one."""
    model, losses = compile(DistributedDataParallel(_model())), []
    for step in range(3):
        with model.no_sync():
            (model(_input(rank) + step) ** 2).mean().backward()
        (model(_input(rank) - step) ** 2).mean().backward()
        losses += [p.grad.sum().item() for p in model.parameters()]
        model.zero_grad()
    return losses


def tensor_parallel(compile, rank):
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return _trained(compile(parallelize_module(_model(), init_device_mesh(devices.kind(), (2,)), plan)), _input(0))


def distributed_argument(compile, rank):
    given = distribute_tensor(torch.arange(8.0).reshape(4, 2), init_device_mesh(devices.kind(), (2,)), [Shard(0)])
    return compile(lambda d: (d * 2).sum() + 1)(given).full_tensor()


def distributed_inside(compile, rank):
    mesh = init_device_mesh(devices.kind(), (2,))

    def program(x):
        d = DTensor.from_local(x, mesh, [Shard(0)]) * 2
        return d.redistribute(mesh, [Replicate()]).to_local().sum()

    return compile(program)(_input(rank))


# One graph for the model, and breaks around it alone.
DATA_PARALLEL = {
    program.__name__: program
    for program in (
        data_parallel, data_parallel_of_fixed_graphs, data_parallel_that_looks_for_parameters, data_parallel_at_times,
    )
}  # fmt: skip
AROUND = {"data_parallel_around": data_parallel_around}  # one graph
PROGRAMS = {
    program.__name__: program
    for program in (
        fsdp, fsdp_compiled_in_place, fsdp_of_the_root_alone, tensor_parallel, distributed_argument, distributed_inside,
    )
}  # fmt: skip


def compared(program, rank):
    """Whether the program does the same compiled, and how."""
    wrong, wanted = "", program(_eager, rank)
    pliant.reset()
    try:
        torch.testing.assert_close(program(pliant.compile, rank), wanted)
    except Exception:
        wrong = traceback.format_exc()
    stats = pliant.stats()
    return {"wrong": wrong, **{name: stats[name] for name in ("graphs", "graph_breaks", "fallbacks")}}
