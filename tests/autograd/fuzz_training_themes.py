"""More statements of random training programs: what is put together here goes wrong together.

`NAMED` are the themes that `python -m tests.autograd.fuzz_training --theme NAME` draws most statements from: of the
program (`body`; rows that end in a colon open a block) and of its caller (`driver`). `{t}`, `{s}`, `{r}` are tensors that
there are, `{v}`, `{w}` new names, `{d}` a dimension, `{n}` a number; in the driver names are as in
`fuzz_training_actions`.
"""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Theme:
    body: tuple[str, ...]
    driver: tuple[str, ...]


HOOKS = Theme(
    body=(
        "{t}.register_hook(noting('h{n}'))",
        "{t}.register_hook(noting_and_scaling('h{n}'))",
        "{t}.register_hook(lambda g: g if g is None else g.clamp(-1, 1))",
        "{t}.register_hook(lambda g: g if g is None else g * {s}.detach().sum())",
        "{v} = {t} * 2; {v}.register_hook(noting_and_scaling('h{n}')); {w} = {v}.sin()",
        "{v} = {t}.sin(); {v}.retain_grad(); {w} = {v}.exp()",
        "{v} = {t} * {s}; {v}.register_hook(double).remove()",
        "{v} = {t} + 0; {v}.register_hook(noting('a{n}')); {v}.register_hook(double); {v}.register_hook(noting('b{n}'))",
        "{v} = {t} * 1; {v}.register_hook(double); {v}.mul_(3); {v}.register_hook(noting('c{n}'))",
        "{v} = {t}.clone(); {w} = {v}[0]; {w}.register_hook(noting('d{n}'))",
        "{v} = {t}.detach().requires_grad_(); {v}.register_hook(double); ({v} * {v}).sum().backward(); {w} = {v}.grad",
        "{v} = {t}.detach().clone().requires_grad_(); {v}.register_post_accumulate_grad_hook(noting_sum('e{n}')); {v}.sin().sum().backward()",
        "{v} = torch.autograd.grad(({t} * {s}).sum(), {t}, allow_unused=True, retain_graph=True)[0]",
        "{v} = Scale.apply({t}, 2.0); {v}.register_hook(noting('f{n}'))",
        "{v} = {t}.detach().requires_grad_(); {w} = ({v} * {v}).sin(); {s}.register_hook(differentiating({w}, {v}))",
        "{v} = {t} * 2; {w} = {t}.detach().requires_grad_(); {v}.register_hook(differentiating({w}.exp() * {w}, {w}))",
        "p.requires_grad_(not p.requires_grad); {v} = {t} * p; p.requires_grad_(not p.requires_grad)",
        "{v} = checkpoint(lambda a: a.sin() * 2, {t}, use_reentrant=False); {v}.register_hook(double)",
        "with torch.no_grad():",
        "with packing():",
    ),
    driver=(
        "{o}[{k}].register_hook(noting_and_scaling('o{n}'))",
        "{o}[{k}].register_hook(double)",
        "{m}.register_hook(noting_and_scaling('m{n}'))",
        "{m}.register_post_accumulate_grad_hook(noting_sum('p{n}'))",
        "{o}[{k}].retain_grad()",
        "backward({o}, {i}, retain_graph=True)",
        "backward({o}, {i})",
        "{v} = grads({o}, {i}, {l}, create_graph=True)",
        "backward({o}, {i}, create_graph=True)",
    ),
)
VIEWS = Theme(
    body=(
        "{v} = {t}.view(-1)", "{v} = {t}[0]", "{v} = {t}.t() if {t}.dim() < 3 else {t}.mT", "{v} = {t}[1:]", "{v} = {t}.detach()",
        "{v} = {t}.view_as({t}); {v}.mul_(2)",
        "{v} = {t}.clone(); {w} = {v}[0]; {w}.mul_(3)",
        "{v} = {t} * 1; {w} = {v}.view(-1); {v}.add_(1); {w}.mul_(2)",
        "{v} = {t} * 1; {w} = {v}.unbind(0)[0]; {v}.mul_(2)",
        "{v} = {t} + 1; {w} = {v}.detach(); {w}.mul_(2)",
        "{v} = {t} + 1; {w} = {v}[:1]; {w}.copy_({t}[:1].detach())",
        "{v} = {t}.clone(); {v}[0], {v}[1] = {v}[1].clone(), {v}[0].clone()",
        "{v} = {t}.clone(); {w} = {v}.expand(2, *{v}.shape)",
        "{v} = {t}.clone(); {v}.diagonal().zero_(); {w} = {v}.diagonal()",
        "{v} = {t}.clone(); {w} = {v}.t(); {w}[0].fill_(1.5)",
        "with torch.no_grad(): {v} = {t}.view_as({t})",
        "with torch.no_grad(): {t}[0].mul_(2)",
        "{v} = {t}.clone().as_strided((2, 2), (1, 2)); {v}.mul_(2)",
        "{v} = torch.view_as_real(torch.complex({t}, {t})); {v}[..., 0].mul_(2)",
        "{v} = {t}.reshape(-1)[1:]; {w} = {t}.flatten()",
        "{v}, {w} = {t}.clone().chunk(2)",
        "{v} = {t}.clone().squeeze(0).unsqueeze(0); {v} += 1",
        "{v} = {t}.clone().real; {v}.sin_()",
        "{v} = torch.movedim({t}.clone(), 0, -1); {v}.exp_()",
        "{v} = AsView.apply({t})", "{v} = {t}.clone(); {w} = AsView.apply({v})",
        "{v} = {t}.unfold(0, 2, 1)", "{v} = {t}.clone(); {w} = {v}.select(0, 1); {w}.add_({v}[0].detach())",
    ),
    driver=(
        "{o}[{k}].mul_(2)", "{o}[{k}][0].mul_(2)", "with torch.no_grad(): {o}[{k}].mul_(2)", "{m}.mul_(2)",
        "with torch.no_grad(): {m}.mul_(2)", "{v} = [{o}[{k}].view(-1)]", "backward({o}, {i}, retain_graph=True)",
        "{v} = grads({o}, {i}, {l}, retain_graph=True)", "{v} = call(f, {w}, x={o}[{k}])", "{v} = call(f, {w}, y={o}[{k}])",
        "{v} = call(f, {w}, y={w}['x'])", "{o}[{k}].detach().mul_(2)",
    ),
)  # fmt: skip
WRITES = Theme(
    body=(
        "{t}.mul_(2)", "{t}.add_({s})", "{t}.copy_({s})", "{t} += 1", "{t}.sin_()", "{t}.exp_()", "{t}.tanh_()", "{t}.data.add_(1)",
        "{t}.detach().add_(1)", "{t}[0] = {s}[0]", "{t}[{t} > 0.5] = 0.1", "{t}.zero_()",
        "{v} = {t}.exp(); {v}.mul_(2)", "{v} = {t}.sigmoid(); {w} = {v} * {v}; {v}.add_(1)", "{v} = {t}.clone(); {v}.mul_({s}); {v}.sin_(); {w} = {v}.cos()",
        "{v} = {t} * {s}; {v} += {t}", "{v} = torch.zeros_like({t}); {v}[0] = {t}[0]; {v}[1:] += {t}[1:]",
        "{v} = torch.empty_like({t}).copy_({t}); {v}.relu_()", "{v} = {t}.new_zeros({t}.shape).add_({t}).mul_({t})",
        "{v} = {t}.clone().index_add_(0, torch.tensor([0, 0]), {t}[:2])", "{v} = {t}.clone().scatter_reduce_(0, torch.zeros(1, {t}.shape[-1], dtype=torch.long), {t}[:1], 'prod')",
        "{v} = {t}.clone().masked_fill_({t} > 0.6, 2.0)", "{v} = {t}.clone().clamp_(0.3, 0.9)", "{v} = F.relu({t}.clone(), inplace=True)",
        "{v} = {t}.clone().index_fill_({d}, torch.tensor([0]), 1.0)", "{v} = {t}.clone().addcdiv_({t}, {t} + 1)", "{v} = {t}.clone(); {v}.lerp_({t} * 2, {t})",
        "with torch.no_grad(): {t}.mul_(1.5)", "with torch.no_grad(): {t}.clamp_(0.1, 0.8)", "{v} = {t}.cumsum({d}).cumsum_({d})",
        "{v} = {t}.clone(); {v}.pow_(2).sqrt_()", "{v} = torch.mul({t}.detach(), 2, out=torch.empty(0, dtype={t}.dtype))", "with torch.no_grad():",
    ),
    driver=(
        "{v} = call(f, {w})", "{v} = call(f, {w})", "backward({o}, {i})", "backward({o}, {i}, retain_graph=True)", "{m}.data.mul_(2)",
        "{v} = grads({o}, {i}, {l}, retain_graph=True)", "{v} = grads({o}, {i}, {l}, create_graph=True)", "with torch.no_grad(): {m}.mul_(2)",
        "{o}[{k}].mul_(2)",
    ),
)  # fmt: skip
DTYPES = Theme(
    body=(
        "{v} = {t}.float()", "{v} = {t}.double()", "{v} = {t}.to(torch.bfloat16).double()", "{v} = {t}.half().float()", "{v} = {t} * {s}.float()",
        "{v} = torch.complex({t}, {t} * 2)", "{v} = torch.complex({t}.double(), {s}.double()).abs()", "{v} = torch.polar({t}.abs(), {t}).imag", "{v} = ({t} * (1 + 2j)).real",
        "{v} = ({t} * 1j).angle()", "{v} = torch.view_as_real({t} * 1j)", "{v} = ({t} + 0j).conj() * ({t} * 2j)", "{v} = ({t} + 1j).exp().abs()",
        "{v} = torch.fft.fft({t}).abs()", "{v} = torch.fft.rfft({t}, dim={d}).real", "{v} = torch.fft.irfft(torch.fft.rfft({t}))", "{v} = torch.fft.ifft({t} + 0j).imag",
        "{v} = ({t} + 0j).conj().resolve_conj().sum().real", "{v} = ({t} * 1j).imag.mul(2)", "{v} = ({t} + 0j); {v}.real.mul_(2); {w} = {v}.abs()",
        "{v} = ({t} + 0j).clone(); {v}.imag.copy_({t}); {w} = ({v} * {v}.conj()).real", "{v} = ({t} > 0.5).to({t}.dtype) * {t}", "{v} = {t}.long()", "{v} = {t}.int() * {t}",
        "{v} = {t}.sum(dtype=torch.float64)", "{v} = {t}.mean({d}, dtype=torch.float64)", "{v} = {t}.cumsum({d}, dtype=torch.float64)", "{v} = {t}.softmax({d}, dtype=torch.float32)",
        "{v} = torch.where({t} > 0.5, {t}, 1)", "{v} = torch.where({t} > 0.5, {t}, {s}.float())", "{v} = {t}.round().to(torch.int8)", "{v} = {t}.type_as({s}.float())",
        "{v} = torch.cat([{t}.flatten(), {t}.float().flatten()])", "{v} = torch.stack([{t}.double(), {t}.float()])", "{v} = {t}.float(); {v} += {t}", "{v} = {t}.double(); {v}.mul_({t}.float())",
        "{v} = ({t} + 0j) @ ({t} + 1j).mT", "{v} = ({t} + 1j).pow(2).imag", "{v} = ({t} + 1j).log().real", "{v} = torch.view_as_complex(torch.stack([{t}, {t}], -1)).abs()",
        "{v} = {t}.bfloat16(); {w} = ({v} * 2).float()", "{v} = {t}.float().sigmoid().double()", "{v} = {t} / 3; {w} = {t} // 0.3", "{v} = {t} % 0.4",
        "with torch.autocast('cpu', torch.bfloat16):", "with torch.autocast('cpu', enabled=False):",
    ),
    driver=(
        "backward({o}, {i})", "backward({o}, {i}, retain_graph=True)", "{v} = grads({o}, {i}, {l}, retain_graph=True)", "{v} = grads({o}, {i}, {l}, create_graph=True)",
        "{v} = call(f, {w}, x={o}[{k}])", "{v} = call(f, {w}, y={o}[{k}])", "{v} = call(f, {w}, y={w}['y'].detach().float().requires_grad_())",
    ),
)  # fmt: skip
DOUBLE = Theme(
    body=(
        "{v} = torch.autograd.grad(({t} ** 3).sum(), {t}, create_graph=True)[0]", "{v} = torch.autograd.grad(({t} * {s}).sin().sum(), {s}, create_graph=True, allow_unused=True)[0]",
        "{v} = {t} ** 3", "{v} = {t}.sin() * {t}", "{v} = {t}.exp() * {s}", "{v} = ({t} * {s}).tanh()", "{v} = {t} / ({s} ** 2 + 1)", "{v} = {t}.softmax({d}) * {t}", "{v} = {t}.sigmoid().log()",
        "{v} = F.layer_norm({t}, {t}.shape[-1:]) * {t}", "{v} = {t}.prod({d})", "{v} = {t}.norm()", "{v} = {t}.std({d})", "{v} = F.silu({t}) * {s}", "{v} = F.gelu({t})", "{v} = F.softplus({t})",
        "{v} = ({t} @ {t}.mT).sin()", "{v} = torch.einsum('...i,...i->...', {t}, {t}.cos())", "{v} = {t}.cumsum({d}) ** 2", "{v} = {t}.cumprod({d})", "{v} = {t}.logsumexp({d})", "{v} = {t}.pow(2.5)",
        "{v} = F.dropout({t}, 0.4) ** 2", "{v} = {t} ** 2; {v}.mul_({t})", "{v} = torch.where({t} > 0.5, {t} ** 2, {t} ** 3)", "{v} = {t}[0] * {t}", "{v} = {t}.flip(0) * {t}", "{v} = {t}.detach() * {t} ** 2",
        "{v} = Saves.apply({t})", "{v} = SetUp.apply({t}, 3)", "{v} = Needs.apply({t}, {s})", "{v} = MaybeNone.apply({t}, {s})[0]", "{v} = Nested.apply({t})", "{v} = Once.apply({t})",
        "{v} = checkpoint(lambda a: a.sin() ** 2, {t}, use_reentrant=False)", "{v} = {t}.abs().sqrt()", "{v} = F.relu({t} - 0.5) ** 2", "{v} = {t}.amax({d}) * {t}.sum()", "{v} = torch.linalg.det({t}.mT @ {t} + 2)",
        "({t} ** 2 * {s}).sum().backward(create_graph=True)", "{v} = {t}.var({d}) * {t}", "{v} = F.mse_loss({t}, {s})", "{v} = F.cross_entropy({t}, {s}.softmax(-1))", "{v} = {t}.atan2({s})",
    ),
    driver=(
        "{v} = grads({o}, {i}, {l}, create_graph=True)", "{v} = grads({o}, {i}, {l}, create_graph=True)", "{v} = grads({o}, {i}, {l}, create_graph=True)",
        "backward({o}, {i}, create_graph=True)", "backward({o}, {i}, retain_graph=True)", "{v} = batched({o}, {k}, {l}, retain_graph=True)", "{v} = call(f, {w}, x={o}[{k}])",
        "{m}.grad = None", "{o}[{k}].register_hook(double)", "{v} = [{o}[{k}] ** 2]",
    ),
)  # fmt: skip
CHECKPOINTS = Theme(
    body=(
        "{v} = checkpoint(lambda a: a.sin().exp(), {t}, use_reentrant=False)", "{v} = checkpoint(lambda a: a.sin().exp(), {t}, use_reentrant=True)",
        "{v} = checkpoint(lambda a, b: (a * b).tanh(), {t}, {s}, use_reentrant=False)", "{v} = checkpoint(lambda a, b: (a * b, a + b), {t}, {s}, use_reentrant=False)[1]",
        "{v} = checkpoint(lambda a: F.dropout(a, 0.3).sin(), {t}, use_reentrant=False)", "{v} = checkpoint(lambda a: F.dropout(a, 0.3).exp().sin(), {t}, use_reentrant=False, preserve_rng_state=False)",
        "{v} = checkpoint(lambda a: a.clone().mul_(2).sin(), {t}, use_reentrant=False)", "{v} = checkpoint(lambda a: a * p, {t}, use_reentrant=False)", "{v} = checkpoint(lambda a: a.view(-1).sin(), {t}, use_reentrant=False)",
        "{v} = checkpoint(lambda a: checkpoint(torch.sin, a, use_reentrant=False) * a, {t}, use_reentrant=False)", "{v} = checkpoint(lambda a: checkpoint(torch.exp, a, use_reentrant=True) * 2, {t}, use_reentrant=False)",
        "{v} = checkpoint(lambda a: a.sin().cos(), {t}, use_reentrant=False, context_fn=selective)", "{v} = checkpoint(lambda a: Saves.apply(a) * 2, {t}, use_reentrant=False)", "{v} = checkpoint(lambda a: Scale.apply(a, 2.0), {t}, use_reentrant=True)",
        "{v} = checkpoint(lambda a: a.detach() * a, {t}, use_reentrant=False)", "{v} = checkpoint(lambda a: {'o': a.exp()}, {t}, use_reentrant=False)['o']", "{v} = checkpoint(lambda a, k: a ** k, {t}, 2, use_reentrant=False)",
        "{v} = checkpoint(lambda a: a, {t}, use_reentrant=False)", "{v} = checkpoint(lambda a: a.sum(), {t}.detach(), use_reentrant=False)", "{v} = checkpoint(lambda a: a[0], {t}, use_reentrant=False) * 2",
        "with torch.no_grad(): {v} = checkpoint(lambda a: a.sin(), {t}, use_reentrant=False)", "{v} = {t}.clone(); {w} = checkpoint(lambda a: a.sin(), {v}, use_reentrant=False); {v}.mul_(2)",
        "{v} = checkpoint_sequential([torch.sin, torch.exp, torch.tanh], 2, {t}, use_reentrant=False)", "with torch.autocast('cpu', torch.bfloat16):", "with packing():", "with torch.no_grad():",
    ),
    driver=(
        "backward({o}, {i})", "backward({o}, {i}, retain_graph=True)", "{v} = grads({o}, {i}, {l}, create_graph=True)", "{v} = grads({o}, {i}, {l}, retain_graph=True)", "{v} = grads({o}, {i}, {l})", "{v} = call(f, {w})",
    ),
)  # fmt: skip
FUNCTIONS = Theme(
    body=(
        "{v} = Scale.apply({t}, 3.0)", "{v} = Saves.apply({t})", "{v} = Dirty.apply({t}.clone())", "{v} = Dirty.apply({t})", "{v}, {w} = DirtyAndMore.apply({t}.clone(), {s})", "{v}, {w} = NonDifferentiable.apply({t})",
        "{v}, {w} = MaybeNone.apply({t}, {s})", "{v} = MaybeNone.apply({t}, {s})[0]", "{v} = MaybeNone.apply({t}, {s})[1]", "{v} = Once.apply({t})", "{v}, {w} = AsIs.apply({t}, {s})", "{v} = AsIs.apply({t}, {s})[1]", "{v} = AsView.apply({t})",
        "{v}, {w}, _ = Several.apply({t})", "{v} = Several.apply({t})[2]", "{v} = Needs.apply({t}, {s})", "{v} = Needs.apply({t}.detach(), {s})", "{v} = SetUp.apply({t}, 3)", "{v} = Nested.apply({t})", "{v} = Scale.apply(Saves.apply({t}), 2.0)",
        "{v} = Saves.apply({t}); {v}.mul_(2)", "{v} = {t}.clone(); {w} = Saves.apply({v}); {v}.add_(1)", "{v} = Needs.apply({t}, {t})", "{v} = AsIs.apply({t}, {t})[0]", "{v} = AsIs.apply({t}, {s})[0]; {v}.register_hook(double)",
        "{v} = torch.autograd.grad(Saves.apply({t}).sum(), {t}, create_graph=True)[0]", "{v} = torch.autograd.grad(Needs.apply({t}, {s}).sum(), {s}, allow_unused=True, retain_graph=True)[0]", "{v} = Scale.apply({t}.float(), 2.0)", "{v} = Saves.apply({t}.view(-1))",
        "with torch.no_grad(): {v} = Saves.apply({t})", "{v} = Dirty.apply({t}.clone().view(-1))", "{v} = Scale.apply({t} * {s}, 1).sum()", "with torch.no_grad():", "with packing():",
    ),
    driver=(
        "backward({o}, {i})", "backward({o}, {i}, retain_graph=True)", "{v} = grads({o}, {i}, {l}, create_graph=True)", "{v} = grads({o}, {i}, {l}, retain_graph=True)", "{v} = grads({o}, {i}, {l})", "{o}[{k}].mul_(2)", "{v} = call(f, {w}, x={o}[{k}])",
        "with torch.no_grad(): {m}.mul_(2)",
    ),
)  # fmt: skip
LAYOUTS = Theme(
    body=(
        "{v} = torch.cat([{t}, {s}], -1)", "{v} = torch.cat([{t}, {s}], -1).tanh()", "{v} = torch.cat([{t}, {s}]).sum(0)", "{v} = torch.stack([{t}, {s}])", "{v} = {t}.sum(0)", "{v} = {t}.tanh().sum(0)", "{v} = {t}.mean({d})",
        "{v} = {t}.T.contiguous()", "{v} = {t}.mT @ {s}", "{v} = {t} @ {s}.mT", "{v} = {t}.unsqueeze(1).expand(-1, {s}.shape[0], -1)", "{v} = ({t}.unsqueeze(1) * {s}).sum(1)", "{v} = {t}.flip(0)", "{v} = {t}.softmax(0)",
        "{v}, {w} = {t}.chunk(2, -1)", "{v} = {t}[..., :2] * 1", "{v} = {t}[1:] * {s}[1:]", "{v} = {t}.permute(*reversed(range({t}.dim()))) * 2", "{v} = {t}.reshape(-1) * 2", "{v} = F.pad({t}, (1, 1))", "{v} = F.layer_norm({t}, {t}.shape[-1:])",
        "{v} = torch.einsum('ij,kj->ik', {t}, {s})", "{v} = F.linear({t}, torch.ones(3, {t}.shape[-1], dtype={t}.dtype))", "{v} = {t} * {t}.sum(0)", "{v} = {t}.repeat(2, 1)", "{v} = {t}.cumsum(0)", "{v} = {t}.gather(0, torch.zeros(1, {t}.shape[-1], dtype=torch.long))",
        "{v} = torch.cat([{t}, {s}], -1).tanh().sum(0)", "{v} = torch.cat([{t}, {s}], -1).sum(0)", "{v} = torch.stack([{t}, {s}], -1).flatten(-2).sin().sum(0)", "{v} = torch.cat([{t}.unsqueeze(0), {s}.unsqueeze(0)], -1).exp().sum(1)", "{v} = ({t}[None] * {s}).mean(1)",
        "{v} = torch.cat([{t}, {s}], 1).sin().split([2, {t}.shape[1] + {s}.shape[1] - 2], 1)[0]", "{v} = pliant.graph_break() or {t} * 1",
    ),
    driver=(
        *[f"backward({{o}}, {{i}}, '{one}', retain_graph=True)" for one in ("gaps", "reversed", "expanded", "columns")],
        *[f"{{v}} = grads({{o}}, {{i}}, {{l}}, '{one}', retain_graph=True)" for one in ("gaps", "reversed", "expanded", "columns")],
        *["; ".join(f"{{u}} = make({n}); {{v}} = call(f, {{u}}); backward({{v}}, {{i}}, '{one}')" for n in (6, 5)) for one in ("gaps", "columns", "columns", "expanded")],
        "{v} = grads({o}, {i}, {l}, 'columns', create_graph=True)", "{u} = make({size}); {v} = call(f, {u}); backward({v}, {i}, 'reversed')", "{u} = make({size}); {v} = call(f, {u})",
        "{v} = [{o}[{k}].sum(), {o}[{k}][0]]", "{m}.grad = None",
    ),
)  # fmt: skip
NAMED = {
    "hooks": HOOKS, "views": VIEWS, "writes": WRITES, "dtypes": DTYPES, "double": DOUBLE, "checkpoints": CHECKPOINTS, "functions": FUNCTIONS, "layouts": LAYOUTS,
}  # fmt: skip
