"""Modules, hooks, RNNs, optimizers, autograd functions, parameters, tensor subclasses."""

import copy

import torch
from tests.capture.constructs.harness import program
from torch import nn
from torch.nn import functional as F


def _fixed(module):
    """The same module with weights that depend on nothing."""
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(torch.linspace(-1, 1, p.numel()).reshape(p.shape) * (i + 1) / 3)
    return module


LINEAR = _fixed(nn.Linear(4, 4))
SEQUENTIAL = _fixed(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4)))
LIST = _fixed(nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]))
DICT = _fixed(nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)}))
PARAMETERS = nn.ParameterList([nn.Parameter(torch.ones(4)), nn.Parameter(torch.full((4,), 2.0))])
PARAMETER_DICT = nn.ParameterDict({"w": nn.Parameter(torch.ones(4)), "v": nn.Parameter(torch.full((4,), 3.0))})
LSTM = _fixed(nn.LSTM(4, 3, batch_first=True))
GRU = _fixed(nn.GRU(4, 3))
CELL = _fixed(nn.LSTMCell(4, 3))
EMBEDDING = _fixed(nn.Embedding(10, 4))
NORM = nn.LayerNorm(4)
BATCH_EVAL = nn.BatchNorm1d(4).eval()
ATTENTION = _fixed(nn.MultiheadAttention(4, 2, batch_first=True))
HOOKED = _fixed(nn.Linear(4, 4))
HOOKED.register_forward_hook(lambda module, args, out: out * 2)
PRE_HOOKED = _fixed(nn.Linear(4, 4))
PRE_HOOKED.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
KWARG_HOOKED = _fixed(nn.Linear(4, 4))
KWARG_HOOKED.register_forward_hook(lambda module, args, kwargs, out: out + len(kwargs), with_kwargs=True)
DROPOUT_EVAL = nn.Dropout(0.5).eval()
TRANSFORMER = _fixed(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)).eval()


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.register_buffer("hidden", None)
        self.extra = [1, 2, 3]

    def forward(self, x, *, flip=False):
        y = x * self.scale
        return -y if flip or self.hidden is not None else y + sum(self.extra)


BUFFERED = Buffered()


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.n = n
        ctx.save_for_backward(x)
        return x * n

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.n, None


class Tagged(torch.Tensor):
    pass


def area(function):
    return program("modules")(function)


@area
def linear(x, y):
    return LINEAR(x)


@area
def sequential(x, y):
    return SEQUENTIAL(x)


@area
def sequential_index_and_slice(x, y):
    return SEQUENTIAL[0](x), SEQUENTIAL[:2](y), len(SEQUENTIAL)


@area
def module_list(x, y):
    for layer in LIST:
        x = layer(x)
    return x


@area
def module_list_enumerate_reversed(x, y):
    for i, layer in enumerate(reversed(LIST)):
        x = layer(x) * (i + 1)
    return x


@area
def module_list_index(x, y):
    return LIST[-1](x) + LIST[0](y)


@area
def module_dict(x, y):
    return {k: m(x) for k, m in DICT.items()}


@area
def module_dict_contains(x, y):
    return DICT["a"](x) if "a" in DICT and "z" not in DICT else y


@area
def parameter_list(x, y):
    for p in PARAMETERS:
        x = x * p
    return x.detach()


@area
def parameter_dict(x, y):
    return (x * PARAMETER_DICT["w"] + PARAMETER_DICT["v"]).detach()


@area
def lstm(x, y):
    out, (h, c) = LSTM(x.unsqueeze(0))
    return out, h, c


@area
def gru(x, y):
    out, h = GRU(x.unsqueeze(1))
    return out, h


@area
def lstm_cell(x, y):
    h, c = CELL(x)
    return CELL(y, (h, c))


@area
def embedding(x, y):
    return EMBEDDING(torch.arange(3)) + 1


@area
def layer_norm(x, y):
    return NORM(x)


@area
def batch_norm_eval(x, y):
    return BATCH_EVAL(x)


@area
def batch_norm_functional_training(x, y):
    return F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True)


@area
def attention(x, y):
    out, weights = ATTENTION(x[None], y[None], y[None])
    return out, weights


@area
def transformer_layer(x, y):
    return TRANSFORMER(x[None])


@area
def forward_hook(x, y):
    return HOOKED(x)


@area
def forward_pre_hook(x, y):
    return PRE_HOOKED(x)


@area
def forward_hook_with_kwargs(x, y):
    return KWARG_HOOKED(input=x)


@area
def dropout_eval(x, y):
    return DROPOUT_EVAL(x), F.dropout(y, 0.5, training=False)


@area
def buffers(x, y):
    return BUFFERED(x), BUFFERED(y, flip=True)


@area
def named_parameters(x, y):
    return [n for n, p in SEQUENTIAL.named_parameters()], sum(p.sum() for p in SEQUENTIAL.parameters()).detach()


@area
def named_children_and_modules(x, y):
    return [n for n, _ in SEQUENTIAL.named_children()], len(list(SEQUENTIAL.modules())), x + y


@area
def get_submodule(x, y):
    return SEQUENTIAL.get_submodule("0")(x)


@area
def state_dict_read(x, y):
    return sorted(BUFFERED.state_dict()), x * BUFFERED.state_dict()["scale"]


@area
def functional_call(x, y):
    return torch.func.functional_call(LINEAR, {"weight": y.T @ y, "bias": y[0]}, (x,))


@area
def custom_function(x, y):
    return Double.apply(x, 3.0)


@area
def parameter_made_inside(x, y):
    return (nn.Parameter(torch.ones(4)) * x).detach()


@area
def parameter_isinstance(x, y):
    return x * isinstance(LINEAR.weight, nn.Parameter), isinstance(x, torch.Tensor), isinstance(x, nn.Parameter)


@area
def module_made_inside(x, y):
    return nn.ReLU()(x)


@area
def module_training_flag(x, y):
    return x if LINEAR.training else y


@area
def call_forward_directly(x, y):
    return LINEAR.forward(x) + nn.Linear.forward(LINEAR, y)


@area
def hasattr_getattr_of_module(x, y):
    return x * hasattr(BUFFERED, "scale"), getattr(BUFFERED, "nothing", 3)


@area
def requires_grad_of_parameters(x, y):
    return x, [p.requires_grad for p in LINEAR.parameters()]


@area
def functional_losses(x, y):
    return F.mse_loss(x, y), F.l1_loss(x, y), F.cross_entropy(x, y.argmax(1)), nn.SmoothL1Loss()(x, y)


@area
def functional_activations(x, y):
    return F.gelu(x), F.silu(y), F.softmax(x, dim=-1), F.leaky_relu(x, 0.2), torch.sigmoid(y)


@area
def deepcopy_of_module(x, y):
    return copy.deepcopy(LINEAR)(x)


@area
def counter_attribute(x, y):
    m = Buffered()
    m.count = 0
    for _ in range(3):
        m.count += 1
    return m(x), m.count


@area
def train_and_eval(x, y):
    m = Buffered()
    m.eval()
    before = m.training
    m.train()
    return x, before, m.training


@area
def optimizer_step(x, y):
    p = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([p], lr=0.1)
    (p * x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return p.detach(), p.grad


@area
def backward_inside(x, y):
    w = torch.ones(4, requires_grad=True)
    (w * x).sum().backward()
    return w.grad


@area
def autograd_grad(x, y):
    w = torch.ones(4, requires_grad=True)
    return torch.autograd.grad((w * x).sum(), w)[0]


@area
def tensor_subclass(x, y):
    t = x.as_subclass(Tagged)
    return isinstance(t + 1, Tagged), (t + 1).as_subclass(torch.Tensor)


@area
def tensor_hook(x, y):
    w = torch.ones(4, requires_grad=True)
    w.register_hook(lambda g: g * 2)
    (w * x).sum().backward()
    return w.grad
