"""What random training programs are made of: templates of statements, one a line or between bars.

`{t}`, `{s}`, `{r}` are tensors, `{d}` a dimension of `{t}`, `{v}`, `{w}` new names. In drivers `{o}` are results of a call, `{i}` places
among them, `{k}` one place, `{w}`, `{u}` inputs, `{l}` a list of inputs, `{m}` one input.
"""

# ruff: noqa: E501

# ---------------------------------------------------------------------------------------------------- inputs

MAKERS = [
    "(torch.rand(n, 3, dtype=D) + 0.5).requires_grad_()",
    "torch.rand(n, 3, dtype=D) + 0.5",
    "(torch.rand(n, 3, dtype=D).requires_grad_() + 0.5)",
    "(torch.rand(3, n, dtype=D).requires_grad_() + 0.5).t()",
    "(torch.rand(n, 6, dtype=D).requires_grad_() + 0.5)[:, ::2]",
    "(torch.rand(n + 2, 3, dtype=D).requires_grad_() + 0.5)[1:n + 1]",
    "(torch.rand(n, 1, dtype=D).requires_grad_() + 0.5).expand(n, 3)",
    "(torch.rand(2, n, 3, dtype=D).requires_grad_() + 0.5)[1]",
    "torch.rand(n, 3, dtype=D).requires_grad_()[:]",
    "torch.rand(n, 3, dtype=D).requires_grad_().detach()",
    "(torch.rand(3 * n, dtype=D).requires_grad_() + 0.5).as_strided((n, 3), (2, 1))",
    "(torch.rand(n, 3, dtype=D) + 0.5).t().contiguous().t().requires_grad_()",
    "torch.nn.Parameter(torch.rand(n, 3, dtype=D))",
    "(torch.rand(n, 3, dtype=D).requires_grad_() * 1).chunk(2)[0].new_ones(n, 3)",
    "(torch.rand(1, 3, n, 3, dtype=D).requires_grad_() * 2).to(memory_format=torch.channels_last)[0, 0]",
]
OF_LEAF = ["[:]", ".detach()", " * 2", ".t().t()", ".data", ".view_as(q)"]
RELATED = ["x", "x", "x.view_as(x)", "x.detach()", "x.flip(0)", "x[:]", "x.t().t()", "p", "x.data", "x * 1"]
PS = [
    "torch.rand(3, dtype=D).requires_grad_()", "torch.nn.Parameter(torch.rand(n, 3, dtype=D))",
    "torch.rand(3, 3, dtype=D).requires_grad_()", "torch.rand(1, dtype=D).requires_grad_()",
    "torch.rand(n, 3, dtype=D).requires_grad_()", "torch.tensor(0.7, dtype=D).requires_grad_()",
]  # fmt: skip
BS = ["torch.rand(n, 3, dtype=D)", "torch.rand(3, dtype=D)", "torch.rand(6, n, dtype=D)[1:4].t()", "x.detach().clone()"]
CS = ["{'u': torch.rand(n, 3, dtype=D), 'w': [p, x]}", "{'u': x, 'w': [y]}", "{'u': torch.rand(3, dtype=D).requires_grad_(), 'w': []}",
      "{'u': b[:], 'w': [torch.rand(n, 3, dtype=D).requires_grad_() * 2]}", "{'u': p, 'w': [b, b]}"]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- the body

VIEWS = """{t}.transpose(0, -1)|{t}.t()|{t}.mT|{t}.diagonal()|{t}.reshape(-1)|{t}.flatten()|{t}.view(-1)|{t}.narrow({d}, 1, 2)
{t}.select({d}, 1)|{t}[1:]|{t}[..., ::2]|{t}[0]|{t}[..., 0]|{t}.unfold({d}, 2, 1)|{t}.chunk(2, {d})[1]|{t}.split(2, {d})[0]
{t}.unbind({d})[1]|{t}.expand(2, *{t}.shape)|{t}.as_strided((2, 2), (2, 1))|{t}.as_strided((2,), (1,), {t}.storage_offset() + 1)
{t}.unsqueeze({d})|{t}.movedim(0, -1)|{t}.squeeze()|{t}.detach()|{t}.data|{t}.view_as({t})|{t}[:]|{t}[None]|{t}.reshape(-1, 2)
torch.view_as_complex({t}.reshape(-1, 2))|torch.view_as_real({t})|{t}.real|{t}.imag|{t}.tensor_split(2)[0]|{t}.expand_as({s})
{t}.contiguous()|{t}.to({t}.dtype)|{t}.swapaxes(0, 1)|{t}.permute(1, 0)|{t}.view({t}.shape)|{t}.reshape({s}.shape)|{t}.hsplit(3)[1]
{t}.T|{t}.unflatten(0, (-1, 2))|{t}.broadcast_to(2, *{t}.shape)|{t}.view_as({s})|{t}.squeeze(0)|{t}.detach().requires_grad_()"""
PAIRS = """{v}, {w} = {t}.unbind(0)[:2]|{v}, {w} = {t}.chunk(2)|{v}, {w} = {t}.split([1, 2], -1)|{v}, {w}, *_ = {t}
{v}, {w} = AsIs.apply({t}, {s})|{v}, {w} = MaybeNone.apply({t}, {s})|{v}, {w} = NonDifferentiable.apply({t})
{v}, {w}, _ = Several.apply({t})|{v}, _, {w} = Several.apply({t})|{v}, {w} = torch.var_mean({t}, 0)|{v}, {w} = {t}.sort(0)
{v}, {w} = DirtyAndMore.apply({t}, {s})|{v}, {w} = {t}.aminmax(dim=0)"""
WRITES = """{t}.mul_(2)|{t}.add_({s})|{t}.copy_({s})|{t}.masked_fill_({t} > 0.7, 0.3)|{t}.index_put_((torch.tensor([0, 1]),), {t}[:1] * 2)
{t}[0] = {s}|{t}[0] += 1.0|{t}[1:] *= {s}|{t}[..., 1] = 0.5|{t}.zero_()|{t}.fill_(0.5)|{t}.sin_()|{t}.clamp_(0.2, 1.0)|{t}.mul_({s})
{t} += {s}|{t} *= 0.5|{t}.data.mul_(2)|{t}.detach().mul_(2)|{t}.index_add_(0, torch.tensor([1, 0]), {t}[:2].detach().clone())
{t}.addcmul_({s}, {r})|{t}.lerp_({s}, 0.3)|{t}.sub_({s}.detach())|torch.mul({s}, {r}, out={t})|torch.add({s}, 1, out={t})
{t}.diagonal().fill_(2.0)|{t}.t().mul_({s})|{t}.view(-1)[:2].zero_()|{t}.index_fill_(0, torch.tensor([1]), 0.2)|{t}[{t} > 0.6] = 0.1
{t}.index_copy_(0, torch.tensor([0]), {s}[:1])|{t}.masked_scatter_({t} > 0.6, {s} * 2)|{t}.relu_()|{t}.exp_()|{t}.bernoulli_(0.5)
{t}.normal_()|{t}.unbind(0)[0].mul_(2)|{t}.transpose(0, -1).copy_({s})|{t}.scatter_(0, torch.zeros(1, {t}.shape[-1], dtype=torch.long), {s})
torch.stack([{s}, {r}], out={t})|{t}.real.mul_(2)|{t}.tanh_().mul_(2)|{t}.squeeze().add_(1)|{t}.copy_({t}.flip(0) + 1)"""
METADATA = """{t}.t_()|{t}.unsqueeze_(0)|{t}.squeeze_()|{t}.resize_(2, 2)|{t}.set_({s})|{t}.detach_()|{t}.requires_grad_()|{t}.transpose_(0, 1)
{t}.requires_grad_(False)|{t}.data = {s}.detach() * 2|{t}.as_strided_((2, 2), (2, 1))|{t}.set_({s}.detach())|{t}.swapaxes_(0, 1)
{t}.grad = torch.ones_like({t})|{t}.grad = None|{t}.retain_grad()|{t}.data = {s}.data.clone()"""
COMPUTES = """{t} * {s}|{t} + {s}|{t}.sin()|{t}.tanh()|{t} * p|{t} @ {s}|{t}.sum()|{t}.mean({d})|{t}.cumsum({d})|{t}.softmax({d})|{t}.relu()
torch.where({t} > 0.6, {t}, {s})|({t}.abs() + 1).sqrt()|{t}.prod({d})|{t}.exp().log1p()|F.dropout({t}, 0.4)|{t} * torch.rand_like({t})|{t}.clone()
{t}.to(torch.float32)|{t}.double()|torch.complex({t}, {s})|{t}.abs()|torch.stack([{t}, {s}])|torch.cat([{t}, {s}])|{t} * 2|{t}.sigmoid()
torch.bernoulli({t}.detach().sigmoid())|{t}.gather(0, torch.zeros(1, {t}.shape[-1], dtype=torch.long))|{t}.flip(0)|{t}.clone().mul_(2)
F.linear({t}, {s})|{t}.norm()|{t}.std({d})|{t} / ({s}.abs() + 1)|{t}.pow(2)|torch.ones_like({t})|{t}.detach() * {s}|{t}.amax({d})
torch.einsum('ij,ij->i', {t}, {s})|{t}.new_zeros(2, 3)|torch.zeros_like({t}).copy_({s})|{t}.max()|{t}[torch.tensor([0, 1])]|{t}.repeat(2, 1)
Scale.apply({t}, 1.5)|Saves.apply({t})|Dirty.apply({t})|Dirty.apply({t}.clone())|Once.apply({t})|AsView.apply({t})|Needs.apply({t}, {s})
SetUp.apply({t}, 2)|Nested.apply({t})|AsIs.apply({t}, {s})[0]|Several.apply({t})[1]|Needs.apply({t}, {s}, False)|Saves.apply(Saves.apply({t}))
checkpoint(lambda a: a.sin() * p, {t}, use_reentrant=False)|checkpoint(lambda a, b: F.dropout(a * b, 0.5), {t}, {s}, use_reentrant=False)
checkpoint(lambda a: (a * 2).tanh().exp(), {t}, use_reentrant=True)|checkpoint(lambda a: F.dropout(a, 0.5).sin(), {t}, use_reentrant=True)
checkpoint(lambda a, b: (a + b).sin().cos(), {t}, {s}, use_reentrant=False, context_fn=selective)
checkpoint(lambda a: a.sin(), {t}, use_reentrant=False, preserve_rng_state=False)|F.layer_norm({t}, {t}.shape[-1:])
torch.func.grad(lambda a: a.sin().sum())({t})|torch.func.vmap(lambda a: a * 2)({t})|torch.func.vjp(torch.sin, {t})[0]
torch.autograd.grad({t}.sum(), {s}, allow_unused=True, retain_graph=True)[0]|torch.autograd.grad(({t} * {s}).sum(), {s}, create_graph=True)[0]
torch.autograd.grad({t}.pow(2).sum(), {s}, create_graph=True, allow_unused=True)[0]|torch.autograd.grad(({t} * {s}).sin().sum(), [{t}, {s}])[1]
torch.autograd.grad({t}.sin(), {t}, torch.ones_like({t}), create_graph=True)[0]|{t}.grad|{t}.grad * 2"""
ACTS = """{t}.register_hook(lambda g: g * 2)|{t}.register_hook(lambda g: None)|{t}.register_hook(noting('h{n}'))|{t}.retain_grad()
{t}.register_hook(noting_and_scaling('h{n}'))|({t} * {s}).sum().backward()|{t}.sum().backward()|{t}.sum().backward(retain_graph=True)
({t} ** 2).sum().backward(inputs=[p])|{t}.sin().sum().backward(create_graph=True)|{t} = {s}|del {t}|{v} = [{t}, {s}]|{v} = {t}.requires_grad
{v} = {t}.is_leaf|{v} = {t}.shape[0] + 1|{v} = {t}._version > 0|{v} = {t} is {s}|{v} = {t}.grad_fn is None|{v} = {t}.is_inference()
{v} = {t}.data_ptr() == {s}.data_ptr()|c['u'] = {t}|c['w'].append({t})|c['k'] = {t}"""
BLOCKS = """with torch.no_grad():|with torch.enable_grad():|with torch.set_grad_enabled(False):|with torch.inference_mode():|with packing():
with torch.autocast('cpu', torch.bfloat16):|with save_on_cpu():|with torch.set_grad_enabled(True):|with torch.no_grad():
with torch.inference_mode(False):|with torch.autocast('cpu', enabled=False):|with torch.no_grad():"""
# ---------------------------------------------------------------------------------------------------- the driver

DRIVES = """backward({o}, {i})|backward({o}, {i}, retain_graph=True)|backward({o}, {i})|backward({o}, {i}, create_graph=True)
{v} = grads({o}, {i}, {l}, retain_graph=True)|{v} = grads({o}, {i}, {l}, create_graph=True)|{v} = grads({o}, {i}, {l})
{v} = grads({o}, {i}, {l}, create_graph=True)|{v} = grads({o}, {i}, [{o}[{k}]], retain_graph=True)|{v} = batched({o}, {k}, {l}, retain_graph=True)
with torch.no_grad(): {m}.mul_(2)|with torch.no_grad(): {o}[{k}].mul_(2)|{o}[{k}].mul_(2)|{o}[{k}].add_(1)|{o}[{k}] = None|{m}.mul_(2)
{o}[{k}].register_hook(noting('ho{n}'))|{o}[{k}].register_hook(double)|{m}.register_hook(noting('hm{n}'))|{o}[{k}].retain_grad()
{m}.register_post_accumulate_grad_hook(noting_sum('pa{n}'))|{m}.grad = None|{m}.data.mul_(2)|{m}.requires_grad_(False)
{m}.register_hook(noting_and_scaling('hm{n}'))|{o}[{k}].register_hook(noting_and_scaling('ho{n}'))|{o}[{k}].grad_fn.register_prehook(noting_node('np{n}'))
{v} = [({o}[{k}] * 2).sin()]|{v} = [{o}[{k}].sum(), {o}[{k}][0]]|{v} = [{o}[{k}].view_as({o}[{k}])]|del {o}|{o}[{k}].requires_grad_()"""
CALLS = """{v} = call(f, {w})|{v} = call(f, make({size}))|with packing(): {v} = call(f, {w})|with torch.no_grad(): {v} = call(f, {w})
with torch.inference_mode(): {v} = call(f, {w})|{v} = call(f, {w}, x={o}[{k}])|{v} = call(f, {w}, y={o}[{k}])|{v} = call(f, {w}, y={w}['x'])
{u} = make({size}); {v} = call(f, {u})|{u} = make({size}); {v} = call(f, {u})|{u} = make({size}); {v} = call(f, {u})|{v} = call(f, {w}, b={w}['x'].detach())"""
