"""Programs for tests of entries on disk: a module that holds them, as programs do."""

import dataclasses
import enum
import functools

import torch
from torch import nn

import pliant

SCALE = 2.0
TABLE = {"a": 0.5}


def inner(x, factor=1.5):
    return torch.relu(x) * factor


def scaled(x):
    return inner(x) * SCALE + TABLE["a"]


def several(x, y, *, flag=True):
    return {"sum": (x + y).sum(-1), "both": [x, y * 2], "flag": flag, "n": x.shape[0]}


def named_as_ours(x, eager, graph):
    return x * eager + graph


def writes(x):
    x.mul_(2)
    return x.view(-1), x


def numbers(x, n):
    return x * n + n


def drops(x):
    return torch.nn.functional.dropout(x, 0.5) + torch.rand(3)


def constant(x):
    return x + torch.tensor([1.0, -0.0, float("inf")])


def refers(x):
    return torch.mm(x, x.t()).softmax(-1), torch.nn.functional.gelu(x)


def make(amount):
    def closure(x):
        return x * amount

    return closure


closure = make(3.0)
partial = functools.partial(torch.add, alpha=2)


def through_others(x):
    return closure(x) + partial(x, x)


class Kind(enum.Enum):
    WIDE = "wide"
    NARROW = "narrow"


@dataclasses.dataclass
class Settings:
    alpha: float = 0.25
    kind: Kind = Kind.WIDE


class Part(nn.Module):
    limit = 1.0

    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.settings = Settings()

    @property
    def slope(self):
        return self.settings.alpha * 2

    @staticmethod
    def shifted(x):
        return x + 1

    @classmethod
    def bounded(cls, x):
        return x.clamp(max=cls.limit)

    def forward(self, x):
        x = self.norm(self.linear(x)) * self.slope
        if self.settings.kind is Kind.WIDE:
            x = self.shifted(x)
        return self.bounded(x)


class Model(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.parts = nn.Sequential(*[Part() for _ in range(depth)])

    def forward(self, x, mask=None):
        x = self.parts(x)
        return x if mask is None else x * mask


class WithSets(Model):
    """A class with sets of text, which processes order otherwise, in methods that nobody calls."""

    def unused(self, name):
        known = {"one", "other", "third", "fourth"}
        return name in known, [each * 2 for each in {"a", "b", "c", "d"}]

    def forward(self, x, mask=None):
        return super().forward(x if mask in {"one", "other", None} else mask)


def hashes(x):
    return x + hash("name") % 7


def register_one(module, factor):
    def times(value):
        return value * factor

    module.register_forward_hook(lambda module, args, output: times(output))


def breaks(x):
    y = x + 1
    pliant.graph_break()
    return y * 2


def lazily(x):
    return (row for row in x + 1)


# ---- changed by tests between a call and what is written of it
def helper_of_changed(x, by=2.0):
    return x * by


class Changed:
    def step(self, x):
        return helper_of_changed(x).relu()


def changed(x):
    return Changed().step(x) + 1


def losses(x, p, q):
    return (x * p).sin().sum(), x.sqrt(), (q * q).sum()
