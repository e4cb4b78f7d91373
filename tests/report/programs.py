"""Programs whose pages are looked at: a break, a training step, sizes that vary."""

import torch

import pliant


def broken(x, w):
    y = torch.softmax(x @ w, -1)
    pliant.graph_break("asked <b>for</b> & meant")  # </script><script>document.title = "taken"</script> größe
    return y.sum(-1) * 2


def step(x, w):
    return torch.nn.functional.gelu(x @ w).square().mean()


def varies(x, by):
    return torch.cat([x[by:], x[:by]]) * (x * x).mean()


def run_all():
    pliant.compile(broken)(torch.ones(4, 8), torch.ones(8, 16))
    w = torch.ones(8, 16, requires_grad=True)
    pliant.compile(step)(torch.ones(4, 8), w).backward()
    compiled = pliant.compile(varies)
    for rows in (4, 5, 6):
        compiled(torch.ones(rows, 3), 1)
    compiled(torch.ones(6, 3), 2)


def line_of(text):
    """The number of the line of this file that has the text."""
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if text in line)
