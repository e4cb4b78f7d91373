"""Statements of random programs over operands of every kind (`fuzz_operands`).

`{t}`, `{s}`, `{r}` are tensors, `{d}` a dimension of `{t}`, `{v}`, `{w}` new names, `{k}` a small number; `$kind` is any row of
`KINDS`. A program has `n` (an int), `k` (a number), `d` (a dict), `m` (a module) and `LOG`, too. No write reads memory
that it writes, but element by element: what comes out is undefined.
"""

# ruff: noqa: E501


def _split(text: str) -> list[str]:
    return [one.strip() for line in text.strip().split("\n") for one in line.split("|") if one.strip()]


KINDS = {
    "one": """abs neg sign sgn floor ceil round trunc frac sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh
        tanh asinh acosh atanh erf erfc erfinv sigmoid relu reciprocal square isnan isinf isfinite isneginf isposinf signbit bitwise_not
        logical_not positive nan_to_num deg2rad rad2deg i0 digamma lgamma sinc angle conj_physical logit""".split(),
    "shape1": "F.gelu F.silu F.softplus F.hardtanh F.relu6 F.elu F.selu F.celu F.mish F.hardswish F.hardsigmoid F.softsign F.tanhshrink F.softshrink F.hardshrink F.logsigmoid F.leaky_relu".split(),
    "two": """add sub mul div true_divide floor_divide remainder fmod pow atan2 maximum minimum fmax fmin hypot copysign nextafter heaviside
        logaddexp logaddexp2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift eq ne lt le gt ge logical_and logical_or
        logical_xor gcd lcm xlogy float_power ldexp rsub isclose""".split(),
    "sign": "+ - * / // % ** & | ^ << >> < <= == != > >=".split(),
    "augmented": "+= -= *= /= //= %= **= &= |= ^=".split(),
    "inplace2": "add_ sub_ mul_ div_ floor_divide_ remainder_ fmod_ pow_ copy_ eq_ lt_ logical_and_ bitwise_or_ bitwise_xor_ atan2_ copysign_ hypot_".split(),
    "inplace1": "abs_ neg_ sign_ floor_ round_ sqrt_ exp_ log1p_ sin_ tanh_ sigmoid_ relu_ zero_ square_ reciprocal_ trunc_ frac_ nan_to_num_ logical_not_ erf_".split(),
    "number": """2 -3 0 0.5 -0.0 True 1j 2**31 2**40 float('inf') float('nan') np.float32(1.5) np.int64(3) np.float64(2.5) np.bool_(True) np.int8(5)
        np.uint8(200) torch.tensor(2) torch.tensor(1.5) torch.tensor(2,dtype=torch.int8) torch.tensor(True) n k {t}.shape[0] k+0.5 n*1.5 -1 300 1e-3""".split(),
    "dtype": ["torch." + one for one in "double float half bfloat16 cfloat bool uint8 int8 short int long".split()],
    "reduce": """sum mean prod amax amin argmax argmin any all nansum nanmean std var logsumexp norm median count_nonzero max min""".split(),
    "scan": "cumsum cumprod logcumsumexp softmax log_softmax argsort".split(),
    "pair": "max min cummax cummin sort median mode".split(),
    "view": _split("""
        t()|transpose(0, -1)|mT|reshape(-1)|flatten()|view(-1)|narrow({d}, 0, 1)|select({d}, 0)|unsqueeze({d})|movedim(0, -1)|squeeze()|detach()|data|view_as({t})
        expand(2, *{t}.shape)|expand_as({s})|unfold({d}, 2, 1)|chunk(2, {d})[0]|split(2, {d})[-1]|unbind({d})[0]|diagonal()|real|imag|contiguous()|to($dtype)
        permute(*reversed(range({t}.dim())))|as_strided((2,), (1,), {t}.storage_offset())|view($dtype)|squeeze(0)|tensor_split(2)[1]|swapaxes(0, -1)|T|H|adjoint()
        broadcast_to(2, *{t}.shape)|reshape({s}.shape)|view({s}.shape)|unflatten(0, (-1, 1))|conj()|to(memory_format=cl)|contiguous(memory_format=cl)|ravel()|type_as({s})
    """),
    "index": _split("""
        0|1:|...|None|:, 0|..., -1|::2|1:-1|-1|..., None|0:0|torch.tensor([0, -1])|{t} > 0|{s} > 0|[0, 0]|torch.tensor([], dtype=torch.long)|:1, ..., :1|n // 2:|True
        torch.tensor(0)|torch.tensor([[0], [1]])|[True, False, True, False]|..., [0, 2]|:, torch.tensor([1, 0])|np.int64(1)|np.array([0, 1])|-2:|:-n|{t} == {t}
    """),
    "format": "torch.preserve_format torch.contiguous_format cl".split(),
    "fill": "normal_() uniform_() uniform_(-1,2) random_() random_(5) random_(2,9) bernoulli_() bernoulli_(0.3) exponential_() geometric_(0.5) cauchy_() log_normal_()".split(),
}  # fmt: skip

COMPUTES = _split("""
    {v} = torch.$one({t})|{v} = torch.$one({t})|{v} = torch.$one({t})|{v} = $shape1({t})|{v} = torch.$two({t}, {s})|{v} = torch.$two({t}, {s})|{v} = torch.$two({t}, $number)
    {v} = {t} $sign {s}|{v} = {t} $sign {s}|{v} = {t} $sign ($number)|{v} = ($number) $sign {t}|{v} = {t} $sign ($number)|{v} = ($number) $sign {t}
    {v} = torch.div({t}, {s}, rounding_mode='floor')|{v} = torch.div({t}, $number, rounding_mode='trunc')|{v} = torch.add({t}, {s}, alpha=$number)|{v} = torch.sub({t}, $number, alpha=2)
    {v} = torch.where({t} > 0, {s}, {r})|{v} = torch.where({t} != {t}, $number, {s})|{v} = torch.where({t} > 0, $number, $number)|{v} = {t}.masked_fill({t} > 0, $number)
    {v} = torch.addcmul({t}, {s}, {r}, value=$number)|{v} = torch.addcdiv({t}, {s}, {r})|{v} = torch.lerp({t}, {s}, 0.3)|{v} = {t}.clamp($number, $number)|{v} = {t}.clamp(min=$number)
    {v} = {t}.clamp({s}, {r})|{v} = {t}.clamp(max={s})|{v} = {t}.round(decimals=1)|{v} = torch.nan_to_num({t}, 1.0, 2.0, 3.0)|{v} = torch.threshold({t}, 0.5, $number)|{v} = {t}.to($dtype)
    {v} = {t}.$reduce()|{v} = {t}.$reduce({d})|{v} = {t}.$reduce({d}, keepdim=True)|{v} = {t}.sum({d}, dtype=$dtype)|{v} = {t}.prod(dtype=$dtype)|{v} = {t}.mean(dtype=$dtype)
    {v} = {t}.$scan({d})|{v} = {t}.cumsum({d}, dtype=$dtype)|{v}, {w} = {t}.$pair({d})|{v}, {w} = {t}.$pair({d}, keepdim=True)|{v}, {w} = {t}.topk(1, {d})|{v} = {t}.sort({d}, descending=True)[1]
    {v} = {t}.sum((0, -1))|{v} = {t}.amax((0, -1), True)|{v} = {t}.norm(1, {d})|{v} = {t}.norm(float('inf'))|{v} = torch.linalg.vector_norm({t}, 0)|{v} = {t}.std({d}, correction=0)|{v} = {t}.quantile(0.3)
    {v} = {t}.aminmax(dim={d})[1]|{v} = {t}.diff(dim={d})|{v} = torch.trapezoid({t}, dim={d})|{v} = {t}.kthvalue(1, {d})[0]|{v} = {t}.histc(4, -1, 2)|{v} = {t}.unique()|{v} = {t}.nonzero()
    {v} = torch.bincount({t}.flatten())|{v} = torch.searchsorted({t}, {s})|{v} = torch.bucketize({t}, torch.tensor([0, 1, 2]))|{v} = torch.isin({t}, {s})|{v} = torch.equal({t}, {s})
    {v} = torch.cat([{t}, {s}], {d})|{v} = torch.stack([{t}, {s}], {d})|{v} = torch.cat([{t}, {s}.to($dtype)])|{v} = torch.stack([{t}, {t}.to($dtype)])|{v} = {t}.flip({d})|{v} = {t}.roll(1, {d})
    {v} = {t}.repeat(2, *[1] * {t}.dim())|{v} = {t}.repeat_interleave(2, {d})|{v} = {t}.tile((2,))|{v} = F.pad({t}, (1, 0), value=2)|{v} = F.pad({t}, (-1, 1))|{v} = {t}.tril()|{v} = {t}.triu(1)|{v} = {t}.rot90()
    {v} = {t} @ {s}|{v} = {t}.mT @ {s}|{v} = torch.matmul({t}, {t}.mT)|{v} = torch.outer({t}.flatten(), {s}.flatten())|{v} = torch.einsum('...i,...i->...', {t}, {s})|{v} = torch.dot({t}.flatten(), {t}.flatten())
    {v} = torch.addmm({t}, {s}, {r})|{v} = torch.tensordot({t}, {s}, 1)|{v} = torch.kron({t}, {s})|{v} = {t}.gather({d}, torch.zeros_like({t}, dtype=torch.long))|{v} = {t}[$index]|{v} = {t}[$index]
    {v} = {t}.index_select({d}, torch.tensor([0, 0]))|{v} = {t}.take(torch.tensor([0, -1]))|{v} = {t}.masked_select({t} > 0)|{v} = torch.take_along_dim({t}, {t}.argsort({d}), {d})|{v} = {t}.index_add({d}, torch.tensor([0]), {t}.narrow({d}, 0, 1))
    {v} = {t}.scatter({d}, torch.zeros_like({t}, dtype=torch.long).narrow({d}, 0, 1), $number)|{v} = {t}.scatter_add(0, torch.zeros_like({t}, dtype=torch.long), {t})|{v} = {t}.scatter_reduce(0, torch.zeros_like({t}, dtype=torch.long), {t}, 'amax')
    {v} = F.layer_norm({t}, {t}.shape[-1:])|{v} = F.normalize({t}, dim={d})|{v} = F.one_hot({t})|{v} = F.cosine_similarity({t}, {s}, dim={d})|{v} = F.mse_loss({t}, {s})|{v} = F.avg_pool2d({t}, 1)|{v} = F.max_pool2d({t}, (1, 2))
    {v} = F.interpolate({t}, scale_factor=2.0)|{v} = F.interpolate({t}, size=(3, 5), mode='bilinear')|{v} = F.adaptive_avg_pool2d({t}, 2)|{v} = F.conv2d({t}, torch.ones(2, 3, 1, 1, dtype={t}.dtype))|{v} = F.pixel_shuffle({t}, 1)|{v} = F.batch_norm({t}, None, None, training=True)
    {v} = torch.view_as_real({t})|{v} = torch.view_as_complex({t})|{v} = torch.complex({t}, {s})|{v} = torch.polar({t}, {s})|{v} = {t}.cdouble().abs()|{v} = {t}.count_nonzero()|{v} = torch.fft.fft({t}).real|{v} = torch.cdist({t}, {s})
    {v} = torch.frexp({t})[0]|{v} = {t}.isreal()|{v} = torch.linalg.cross({t}, {s})|{v} = torch.meshgrid({t}.flatten(), {s}.flatten(), indexing='ij')[0]|{v} = torch.broadcast_tensors({t}, {s})[1]|{v} = torch.block_diag({t}, {s})|{v} = torch.combinations({t}.flatten())
    {v} = torch.cartesian_prod({t}.flatten(), {s}.flatten())|{v} = torch.vander({t}.flatten())|{v} = {t}.cov()|{v} = torch.logdet({t} @ {t}.mT)|{v} = torch.cov({t})|{v} = torch.corrcoef({t})|{v} = torch.gradient({t}, dim={d})[0]|{v} = torch.dist({t}, {s})
    {v} = np.asarray({t}); {v} = torch.from_numpy({v} + 1)|{v} = torch.as_tensor({t}.numpy().sum())|{v} = torch.tensor({t}.tolist())|{v} = torch.as_tensor({t}, dtype=$dtype)|{v} = torch.tensor([k, n, 2])|{v} = torch.tensor(k)
""")
MAKES = _split("""
    {v} = torch.zeros_like({t}, memory_format=$format)|{v} = torch.ones_like({t}, dtype=$dtype)|{v} = torch.empty_like({t}).fill_(1)|{v} = torch.full_like({t}, $number)|{v} = {t}.new_full((n, 2), $number)|{v} = {t}.new_tensor([1, 2.5])
    {v} = torch.full((2, n), $number)|{v} = torch.arange(n)|{v} = torch.arange(0, k, 0.5)|{v} = torch.arange(n, -1, -1, dtype=$dtype)|{v} = torch.linspace(0, k, n)|{v} = torch.linspace(0, 5, 4, dtype=$dtype)|{v} = torch.eye(n, 3, dtype=$dtype)
    {v} = {t}.clone(memory_format=$format)|{v} = {t}.contiguous(memory_format=$format)|{v} = {t}.to($dtype, memory_format=$format)|{v} = {t}.to($dtype, copy=True)|{v} = {t}.clone()|{v} = {t} * 1|{v} = {t}.to({s})|{v} = torch.empty(n, 3).copy_({t})
    {v} = torch.scalar_tensor($number)|{v} = torch.tensor($number)|{v} = torch.as_tensor($number)|{v} = torch.logspace(0, 1, 3)|{v} = {t}.new_empty(n, 2).fill_($number)|{v} = torch.tril_indices(n, 3)|{v} = torch.hann_window(5)|{v} = torch.range(0, 3)
""")
VIEWS = _split("{v} = {t}.$view|{v} = {t}.$view|{v} = {t}[$index]|{v} = torch.$one({t}.$view)|{v} = {t}.$view.$view|{v} = {t}.$view.clone()")
WRITES = _split("""
    {t}.$inplace2({s})|{t}.$inplace2($number)|{t}.$inplace1()|{t} $augmented {s}|{t} $augmented ($number)|{t}[$index] = $number|{t}[$index] = {s}|{t}[$index] $augmented ($number)|{t}[$index] = {s}.to($dtype)|{t}.fill_($number)
    {t}.$view.$inplace2($number)|{t}.$view.$inplace1()|{t}.$view.copy_({s})|{t}.$view.zero_()|{t}.masked_fill_({t} > 0, $number)|{t}.masked_fill_({s} > 0, 3)|{t}.clamp_($number, $number)|{t}.index_fill_({d}, torch.tensor([0]), $number)
    {t}.copy_({t}.flip(0))|{t}.index_put_((torch.tensor([0, 0]),), {t}[:1].clone(), accumulate=True)|{t}.index_add_({d}, torch.tensor([0]), {t}.narrow({d}, 0, 1).clone())|{t}.scatter_({d}, torch.zeros_like({t}, dtype=torch.long).narrow({d}, 0, 1), $number)
    {t}.addcmul_({s}, {r})|{t}.lerp_({s}, 0.5)|{t}.data.$inplace2($number)|{t}.detach().$inplace2($number)|{t}.cumsum_({d})|{t}.tril_()|{t}.fill_diagonal_($number)|{t}.masked_scatter_({t} > 0, {s} * 1)|{t}.put_(torch.tensor([0]), {t}.flatten()[:1].clone())
    {t}.view(-1)[:2] = $number|{t}.flatten()[0] = 7|{t}.T[0] = $number|{t}.diagonal().fill_($number)|{t}.real.$inplace2(2)|{t}.unbind({d})[0].$inplace2(2)|{t}.expand(2, *{t}.shape)[0].add_(1)|F.relu({t}, inplace=True)|F.dropout({t}, 0.5, inplace=True)
    {v} = {t}.clone(); {v}[$index] = {s}|{v} = {t}.clone(); {v}.$view.$inplace2($number); {w} = {v}.$view|{v} = {t} * 1; {w} = {v}.$view; {v}.$inplace2({s})|{v} = {t}.clone(); {w} = {v}.$view; {w}.$inplace1()|{t}.index_copy_({d}, torch.tensor([0]), {t}.narrow({d}, 0, 1).clone())
    torch.where({t} > 0, {s}, {t}, out={t})|np.asarray({t})[...] = 2|{t}.numpy().fill(3)|{t}.numpy()[0] += 1|{t}.normal_(0, 1).mul_(2)|{t}.resize_as_({s}).zero_()
""")
OUTS = _split("""
    {v} = torch.empty(0, dtype={t}.dtype); torch.mul({t}, {s}, out={v})|{v} = torch.empty(0); torch.$one({t}, out={v})|{v} = torch.empty(0, dtype=$dtype); torch.$two({t}, {s}, out={v})|torch.$two({t}, {s}, out={r})|torch.$one({t}, out={r})
    {v} = torch.empty_like({t}); {w} = torch.add({t}, {s}, out={v})|{v} = torch.zeros(2, n, 3); torch.$one({t}, out={v}[1])|{v} = {t}.clone(); torch.cat([{t}, {s}], out={v})|{v} = torch.empty(0, dtype={t}.dtype); torch.cat([{t}, {s}], {d}, out={v})
    {v}, {w} = torch.empty(0, dtype={t}.dtype), torch.empty(0, dtype=torch.long); torch.sort({t}, {d}, out=({v}, {w}))|{v}, {w} = torch.empty(0, dtype={t}.dtype), torch.empty(0, dtype=torch.long); torch.max({t}, {d}, out=({v}, {w}))
    {v} = torch.zeros(n, 3, dtype={t}.dtype).t(); torch.add({t}, 1, out={v}.t())|{v} = torch.zeros(5, dtype={t}.dtype); torch.sum({t}, {d}, out={v})|{v} = torch.empty(0, dtype=torch.bool); torch.gt({t}, {s}, out={v})|{v} = torch.empty(0); torch.arange(n, out={v})
    {v} = torch.empty(0); torch.matmul({t}, {s}, out={v})|torch.clamp({t}, -1, 1, out={t})|torch.stack([{t}, {s}], out={r})|{v} = torch.empty(0, dtype=torch.long); torch.nonzero({t}, out={v})|torch.cumsum({t}, {d}, out={t})|torch.randn(n, 3, out={t})|torch.index_select({t}, {d}, torch.tensor([0]), out={r})
""")
METADATA = _split("""
    {t}.t_()|{t}.unsqueeze_(0)|{t}.squeeze_()|{t}.transpose_(0, -1)|{t}.resize_(2, 2).fill_(1)|{t}.set_({s})|{t}.data = {s}.clone()|{v} = {t}.clone(); {v}.resize_(2, 3).fill_(1)|{v} = {t}.clone(); {v}.resize_(0)|{v} = {t}.clone(); {v}.set_({s})
    {v} = {t}.clone(); {v}.t_(); {w} = {v} + 1|{v} = {t}.clone(); {v}.as_strided_((2,), (1,))|{v} = {t}.clone(); {v}.data = {s}|{v} = torch.empty(0); {v}.set_({t}.untyped_storage())|{t}.resize_as_({s}).fill_(3)|{v} = torch.empty(n, 3); {v}.resize_(3, n).fill_(0)
""")
DRAWS = _split("""
    {v} = torch.rand(n, 3)|{v} = torch.randn(3, n, dtype=torch.double)|{v} = torch.randint(0, 9, (n, 3))|{v} = torch.randint(-3, 7, (n,), dtype=torch.int8)|{v} = torch.randperm(n)|{v} = torch.rand_like({t})|{v} = torch.randn_like({t}, dtype=torch.float)|{v} = torch.randint_like({t}, 5)
    {v} = torch.bernoulli({t}.float().sigmoid().nan_to_num())|{v} = torch.normal({t}, 1.0)|{v} = torch.normal(0.0, 1.0, (n, 2))|{v} = torch.poisson({t}.float().abs().clamp(max=5).nan_to_num())|{v} = torch.multinomial(torch.ones(5), 3)|{v} = torch.multinomial(torch.ones(n, 4), 2, replacement=True)
    {v} = F.dropout({t}, 0.4)|{v} = F.alpha_dropout({t}, 0.4, True)|{v} = F.rrelu({t}, training=True)|{v} = F.gumbel_softmax({t}, dim={d})|{v} = F.dropout1d({t}, 0.5)|{v} = F.dropout2d({t}, 0.5)|{v} = F.feature_alpha_dropout({t}, 0.5, True)
    {t}.$fill|{v} = {t}.clone().$fill|{v} = torch.empty(n, 3).$fill|{v} = torch.empty(n, 3, dtype=$dtype).$fill|{v} = torch.zeros_like({t}).$fill|{t}.$view.$fill|{v} = torch.rand(n, generator=torch.Generator().manual_seed(n))|{v} = torch.distributions.Normal(0., 1.).sample((n,))
    {v} = torch.randn(n, 3, dtype=torch.cfloat)|{v} = torch.randn(n, 3, dtype=torch.bfloat16)|{v} = torch.rand(n, 3, dtype=torch.half)|{v} = torch.distributions.Categorical(logits=torch.zeros(4)).sample((n,))|torch.manual_seed(k)|{v} = torch.distributions.Gamma(2., 1.).sample((n,))
    {v} = torch.distributions.Bernoulli(0.3).sample((n, 2))|{v} = torch.nn.init.xavier_uniform_(torch.empty(3, 4))|{v} = torch.nn.init.orthogonal_(torch.empty(3, 3))|LOG.append(torch.initial_seed())|{v} = torch.randint(2**40, (3,))|{v} = torch.rand(0)|{v} = torch.randn(())
""")
FACTS = [
    f"LOG.append({one})"
    for one in _split("""
    {t}.stride()|{t}.is_contiguous()|{t}.is_contiguous(memory_format=cl)|{t}.storage_offset()|{t}.dtype|{t}.element_size()|{t}.is_set_to({s})|{t}.data_ptr() == {s}.data_ptr()|{t}.untyped_storage().nbytes()|{t}._is_view()|{t}._base is {s}
    torch.result_type({t}, {s})|torch.result_type({t}, $number)|torch.can_cast({t}.dtype, $dtype)|{t}.is_floating_point()|{t}.is_complex()|bool(({t} > 0).any())|{t}.flatten()[0].item()|{t}.tolist()|int(({t} > 0).sum())|len({t})|{t}.numel()|{t}.shape
    {t}.sum().item()|str({t}.shape)|repr({t}.dtype)|{t} is {s}|{t}.size({d})|{t}.nbytes|{t}.itemsize|{t}.ndim|{t}._version|{t}.is_signed()|{t}.is_conj()|torch.is_nonzero(({t} > 0).sum())|torch.equal({t}, {s})|torch.allclose({t}, {s}, equal_nan=True)
    {t}.dim_order()|{t}.is_inference()|{t}.requires_grad|{t}.is_leaf|[*{t}.shape]|f'{{t}.shape} {n}'|torch.promote_types({t}.dtype, $dtype)|{t}.names|{t}.layout|{t}.device.type|torch.is_tensor({t})|float(k)|{t}.numpy().dtype|np.asarray({t}).shape
    torch.finfo({t}.dtype).eps|torch.iinfo({t}.dtype).max|{t}.untyped_storage().data_ptr() == {s}.untyped_storage().data_ptr()|{t}.stride({d})|{t}.is_nonzero()|{t}.type()|hash({t}) == hash({s})|({t} == {s}).all().item()|{t}.max().item()|float({t}.min())|{t}.isnan().any().item()
""")
]
STATE = _split("""
    m.train()|m.eval()|{v} = m({t}.float().reshape(-1, 3))|m.calls += 1|m.seen = m.seen * 2|m.seen.mul_(2)|m.register_buffer('more', {t})|m.notes.append(n)|m.notes.append({t})|del m.calls; m.calls = torch.tensor(3)|LOG.append(m.training)|{v} = m.seen.clone()|m.seen.data = {t}.detach().float()
    d['{k}'] = {t}|d['a'] = {t} + 1|d.pop('a', None)|d.update(c={t})|d['b'].append({t})|d['b'].insert(0, n)|d['b'][:] = [{t}, {s}]|d['b'] += [k]|d.setdefault('a', {s})|LOG.append([*d])|d['b'].reverse()|d['b'].clear()|d.clear()|{v} = d.get('a', {t}) * 2|LOG.append(len(d['b']))
    LOG.append([*{{'{k}', 'p', n}}])|{v} = [{t}, {s}]; {v}[0] = {v}[1]; {v} = {v}[0]|d['{k}'], d['a'] = {t}, {s}|d |= {{'z': n}}|d['b'] *= 2|del d['b'][0]|d['b'].extend([{t}] * 2)|d['b'].pop()|LOG.append([one is {t} for one in d.values()])|d['{k}'] = d
""")
BLOCKS = [
    "if n > 4:\n    {t}.add_(1)\nelse:\n    {t}.mul_(2)",
    "for one in {t}:\n    one.$inplace1()",
    "try:\n    {t}.add_(1)\n    {t}[100]\nexcept IndexError:\n    LOG.append('caught')",
    "try:\n    {t}.$inplace2($number)\n    {t}.view(7, 11)\nexcept RuntimeError as e:\n    LOG.append(type(e).__name__)\nfinally:\n    {s}.mul_(2)",
    "with torch.inference_mode():\n    {v} = {t} + 1\n    {t}.$inplace2(2)",
    "with torch.no_grad():\n    {t}.$inplace2($number)",
    "pliant.graph_break()",
    "{v} = {t}.$view\npliant.graph_break()\n{v}.$inplace2($number)",
    "{v} = {t}.$view\npliant.graph_break()\n{t}.$inplace2($number)\n{w} = {v} + 1",
    "{v} = {t}.clone()\n{w} = {v}.$view\npliant.graph_break()\n{w}.$inplace2($number)",
    "for i in range(n):\n    {t}[i] = i",
    "if {t}.numel() and bool(({t} > 0).any()):\n    {s}.add_(1)",
    "h = m.register_forward_hook(lambda module, args, out: out * 2)\n{v} = m({t}.float().reshape(-1, 3))\nh.remove()",
    "h = m.register_forward_pre_hook(lambda module, args: LOG.append(args[0].shape))\n{v} = m({t}.float().reshape(-1, 3))\nh.remove()",
    "if n == 0:\n    raise ValueError({t}.shape)",
    "{t}.add_(1)\nif n == 1: raise KeyError(n)",
    "try:\n    d['b'].append(1)\n    d['nothing']\nexcept KeyError as e:\n    LOG.append(str(e))\n    d['{k}'] = {t}",
    "while {t}.dim() < 3:\n    {t} = {t}[None]",
    "with torch.random.fork_rng():\n    {v} = torch.rand(n)",
    "{v} = torch.get_rng_state()\n{w} = torch.rand(3)\ntorch.set_rng_state({v})",
]
STATEMENTS = (
    (COMPUTES, 10), (MAKES, 2), (VIEWS, 4), (WRITES, 6), (OUTS, 1.5), (METADATA, 0.8), (DRAWS, 2), (FACTS, 2), (STATE, 1.5), (BLOCKS, 1.2),
)  # fmt: skip
