"""Programs that send messages between two processes: a row each.

`WHOLE`: one graph, which does what eager does. `BREAKING`: the same results, and a visible graph break.
Each takes a tensor of four elements, other ones on each rank; what it returns, what is left in its argument, and the
gradient of what it returns (where there may be breaks) are compared with eager's.
"""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

WHOLE, BREAKING = {}, {}
GLOO_ALONE = {"monitored_barrier"}
_resolve_group = getattr(functional, "_resolve_group", None) or functional._resolve_group_name  # before PyTorch 2.13


def whole(program):
    WHOLE[program.__name__] = program
    return program


def breaking(program):
    BREAKING[program.__name__] = program
    return program


def _pair(x):
    return [torch.zeros_like(x), torch.zeros_like(x)]


# ---- in place, blocking
@whole
def all_reduce(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1


@whole
def all_reduce_of_the_argument(x):
    y = x.sin()
    dist.all_reduce(x)
    return x + y


@whole
def all_reduce_of_a_part(x):
    y = x * 2
    dist.all_reduce(y[1:3], op=dist.ReduceOp.MAX)
    dist.all_reduce(x[:2], dist.ReduceOp.PRODUCT, dist.group.WORLD)
    return y + x


@whole
def all_reduce_twice(x):
    y, z = x + 1, x + 1
    dist.all_reduce(y)
    dist.all_reduce(z)
    dist.all_reduce(z)
    return y, z


@whole
def all_reduce_not_read(x):
    dist.all_reduce(x + 1)
    return x * 2


@whole
def broadcast(x):
    y = x * 2
    dist.broadcast(y, 1)
    dist.broadcast(x, src=0)
    return y + x


@whole
def reduce(x):
    y = x * 2
    dist.reduce(y, 0)
    return y + 1 if dist.get_rank() == 0 else x


@whole
def all_gather(x):
    parts = _pair(x)
    dist.all_gather(parts, x * 3)
    return torch.cat(parts).cumsum(0)


@whole
def all_gather_into_tensor(x):
    out = x.new_empty(8)
    dist.all_gather_into_tensor(out, x + 1)
    return out * 2


@whole
def all_gather_of_a_part(x):
    out = torch.cat([x, x])
    rank = dist.get_rank()
    dist.all_gather_into_tensor(out, out[4 * rank : 4 * rank + 4])
    return out


@whole
def reduce_scatter(x):
    out = torch.empty_like(x)
    dist.reduce_scatter(out, [x, x * 2])
    return out + 1


@whole
def reduce_scatter_tensor(x):
    out = x.new_empty(2)
    dist.reduce_scatter_tensor(out, x * x)
    return out + 1


@whole
def all_to_all(x):
    out = [x.new_zeros(2), x.new_zeros(2)]
    dist.all_to_all(out, list((x * 2).chunk(2)))
    return torch.cat(out) + x


@whole
def all_to_all_single(x):
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x + 1)
    return out * 2


@whole
def all_to_all_single_by_sizes(x):
    rank = dist.get_rank()
    out = x.new_empty(2 if rank == 0 else 6)
    dist.all_to_all_single(out, x, [1, 1] if rank == 0 else [3, 3], [1, 3])
    return out * 2


@whole
def gather(x):
    parts = _pair(x) if dist.get_rank() == 0 else None
    dist.gather(x * 2, parts, dst=0)
    return torch.stack(parts) if parts is not None else x


@whole
def scatter(x):
    out = torch.empty_like(x)
    dist.scatter(out, [x, x * 2] if dist.get_rank() == 1 else None, src=1)
    return out + 1


@whole
def barrier(x):
    y = x + 1
    dist.barrier()
    return y * 2


@whole
def send_and_recv(x):
    y = x * 2
    if dist.get_rank() == 0:
        dist.send(y, 1)
        return y
    return y + dist.recv(y, 0)


@whole
def world(x):
    assert dist.is_initialized()
    return x * dist.get_rank() + dist.get_world_size()


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous().clone()
        dist.all_reduce(g)
        dist.all_reduce(g * 2)
        return g


@whole
def in_a_backward(x):
    return (_Summed.apply(x.sin()) * x).sum()


@whole
def where_gradients_flow_around(x):
    y = x.detach() * 2
    dist.all_reduce(y)
    return (x.sin() * y).sum()


@whole
def gradients_summed_inside(x):
    y = x.detach().requires_grad_()
    (g,) = torch.autograd.grad((y.exp() * 2).sum(), y)
    dist.all_reduce(g)
    return x - 0.1 * g


@whole
def numbers_that_were_known(x):
    where, rank = x.device, dist.get_rank()
    n, most = torch.tensor([4], device=where), torch.tensor(rank, device=where)
    parts = [torch.tensor([0], device=where), torch.tensor([0], device=where)]
    dist.all_reduce(n)
    dist.all_gather(parts, torch.tensor([3 + rank], device=where))
    dist.broadcast(most, 1)
    return x * n.item() + parts[1].item() - parts[0].item() + int(most)


# ---- functional
@whole
def functional_all_reduce(x):
    return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1


@whole
def functional_numbers_that_were_known(x):
    n = functional.all_reduce(torch.tensor([4], device=x.device), "sum", dist.group.WORLD)
    return x * n.item()


@whole
def functional_all_gather(x):
    return functional.all_gather_tensor(x * 2, 0, dist.group.WORLD).sin()


@whole
def functional_all_gather_of_columns(x):
    return functional.all_gather_tensor(x.reshape(2, 2) * 2, 1, dist.group.WORLD).sin()


@whole
def functional_reduce_scatter(x):
    return functional.reduce_scatter_tensor(x * x, "sum", 0, dist.group.WORLD) + 1


@whole
def functional_broadcast(x):
    return functional.broadcast(x * 2, 1, dist.group.WORLD) + 1


@whole
def functional_all_to_all(x):
    return functional.all_to_all_single(x * 2, None, None, dist.group.WORLD) + 1


@whole
def functional_operators(x):
    ops, name = torch.ops._c10d_functional, _resolve_group(dist.group.WORLD)
    name = name if isinstance(name, str) else name.group_name
    y = ops.all_reduce(x * 2, "sum", name)
    z = x.cos()
    return ops.wait_tensor(y) + z


@whole
def functional_coalesced(x):
    one, other = functional.all_reduce_coalesced([x * 2, x[:2]], "sum", dist.group.WORLD)
    return one.sum() + other


# ---- what is waited for later, sends objects, or has no row
@breaking
def all_reduce_later(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x.cos()
    work.wait()
    return y + z


@breaking
def all_gather_later(x):
    out = x.new_empty(8)
    work = dist.all_gather_into_tensor(out, x + 1, async_op=True)
    work.wait()
    return out * 2


@breaking
def broadcast_later(x):
    y = x * 2
    work = dist.broadcast(y, 0, async_op=True)
    work.wait()
    return y + 1


@breaking
def isend_and_irecv(x):
    y, z = x * 2, torch.empty_like(x)
    other = 1 - dist.get_rank()
    works = [dist.isend(y, other), dist.irecv(z, other)]
    for work in works:
        work.wait()
    return y + z


@breaking
def batch_isend_irecv(x):
    y, z = x * 2, torch.empty_like(x)
    other = 1 - dist.get_rank()
    calls = [dist.P2POp(dist.isend, y, other), dist.P2POp(dist.irecv, z, other)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    return y + z


@breaking
def all_gather_object(x):
    found = [None, None]
    dist.all_gather_object(found, {"rank": dist.get_rank()})
    return x + found[1]["rank"]


@breaking
def broadcast_object_list(x):
    found = [dist.get_rank() + 3]
    dist.broadcast_object_list(found, 1)
    return x + found[0]


@breaking
def gather_object(x):
    found = [None, None] if dist.get_rank() == 0 else None
    dist.gather_object("ab", found, 0)
    return x + len(found or ())


@breaking
def scatter_object_list(x):
    found = [None]
    dist.scatter_object_list(found, [1, 2], 0)
    return x + found[0]


@breaking
def all_reduce_of_columns(x):
    y = x.reshape(2, 2).t()
    try:
        dist.all_reduce(y)
    except (RuntimeError, ValueError):
        return x
    return y


@breaking
def monitored_barrier(x):
    y = x * 2
    dist.monitored_barrier()
    return y + 1


@breaking
def by_the_operator_of_the_group(x):
    y = x * 2
    group = dist.group.WORLD
    torch.ops.c10d.broadcast_([y], group.boxed(), 0, 0, True, -1)[1]
    dist.barrier()
    return y + 1


# Those that are run as kernels, too; those whose gradients are compared.
COMPILED = ("all_reduce_of_a_part", "all_gather", "barrier", "in_a_backward", "functional_all_gather")
DIFFERENTIATED = (
    "all_reduce",
    "all_gather_into_tensor",
    "in_a_backward",
    "where_gradients_flow_around",
    "functional_all_reduce",
    "functional_all_gather_of_columns",
    "functional_reduce_scatter",
    "functional_broadcast",
    "functional_all_to_all",
)


def compiled_names():
    return [f"{name} compiled" for name in COMPILED]


def rows():
    from tests.distributed import sharded
    from tests.distributed.worker import compared

    for name, program in {**WHOLE, **BREAKING}.items():
        with_gradients = name in DIFFERENTIATED
        yield name, lambda rank, p=program, g=with_gradients: compared(p, rank, "aot_eager", g)
    for name in COMPILED:
        yield f"{name} compiled", lambda rank, p=WHOLE[name]: compared(p, rank, "pliant", p is in_a_backward)
    for name, program in {**sharded.PROGRAMS, **sharded.DATA_PARALLEL, **sharded.AROUND}.items():
        yield name, lambda rank, p=program: sharded.compared(p, rank)
