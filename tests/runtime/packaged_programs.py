"""Programs that `test_packaged_compiler.py` runs where there is no compiler: `python packaged_programs.py NAME [FILE]`."""

import sys

import torch
import torch.nn.functional as F

import pliant


def pointwise(x):
    return torch.tanh(x) * F.gelu(x) + torch.sinh(x * 0.1) - x.abs().sqrt()


def rows(x):
    return F.layer_norm(x, x.shape[-1:]).softmax(-1) + x.var(-1, keepdim=True)


def extremes(x):
    return torch._safe_softmax(x - torch.inf, -1), (x - torch.inf).amax(-1), (x + torch.inf).amin(-1)


def columns(x):
    return x.sum(0) + x.amax(0) * x.argmax(0)


def running(x):
    return x.cumsum(-1) + x.cummax(0).values


def casts(x):
    return x.half() * 2, x.bfloat16() + 1, (x * 10).to(torch.int8), x.double().exp(), x.half().double()


def moved(x):
    return x.t().contiguous() + 1, x.flip(0), x[:, ::2] * 2


def chosen(x):
    index = (x[:, 0] * 10).long().abs() % x.shape[0]
    return x[index], torch.zeros_like(x).index_add(0, index, x), F.embedding(index, x)


def operators():
    torch.manual_seed(0)
    for program in (pointwise, rows, extremes, columns, running, casts, moved, chosen):
        compiled = pliant.compile(program)
        for shape in ((33, 70), (40, 129), (5, 3)):  # sizes are symbols from the second on
            for dtype in (torch.float32, torch.float64):
                x = torch.randn(shape, dtype=dtype)
                torch.testing.assert_close(compiled(x), program(x))


def training():
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    x, gradients = torch.randn(2, 10, 32), []
    for one in (pliant.compile(model), model):
        model.zero_grad()
        one(x).square().mean().backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def entry():
    x = torch.linspace(-3, 3, 999)
    torch.testing.assert_close(pliant.compile(pointwise)(x), pointwise(x))
    print("entries", pliant.stats()["entries"])


def package(file):
    program = pliant.export(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU()).eval(), (torch.ones(2, 8),))
    pliant.aot_compile(program, file)


def load(file):
    program, x = pliant.load(file, kernels=True), torch.randn(2, 8)
    weight, bias = (program.state_dict()[name] for name in ("0.weight", "0.bias"))
    torch.testing.assert_close(program(x), F.gelu(F.linear(x, weight, bias)))


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    globals()[name](*arguments)
    print("fallbacks", pliant.stats()["fallbacks"])
