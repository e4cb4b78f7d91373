"""More statements of random programs: what is put together here goes wrong together.

`NAMED` are the themes that `python -m tests.capture.fuzz_programs --theme NAME` draws most statements from. They hold
what `fuzz_statements` says, and `NET`, `PART`, `SLOTTED` and `LAZY` of `PRELUDE`, which `CHANGES` change between calls.
"""

# ruff: noqa: E501
PRELUDE = '''
import numpy as np

class Part(torch.nn.Module):
    depth = 1
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("none", None)
        self.options = {"k": 1}
    def forward(self, t):
        if hasattr(self, "extra"): t = t + self.extra
        if self.none is not None: t = t * 2
        return t * self.w + self.seen + getattr(self, "bias", 0) * self.depth

class Net(torch.nn.Module):
    shown = property(lambda self: getattr(self, "late_name", "no name"))
    def __init__(self):
        super().__init__()
        self.one = Part()
        self.parts = torch.nn.ModuleList([Part(), Part()])
        self.named = torch.nn.ModuleDict({"p": Part()})
    @property
    def failing(self): return self.nothing_there
    def forward(self, t):
        for part in self.parts: t = part(t)
        return self.one(t) if getattr(self, "use", True) else t

class Fallback(torch.nn.Module):
    """A module with a `__getattr__` of its own."""
    def __init__(self): super().__init__(); self.inner = Part()
    def __getattr__(self, name):
        try: return super().__getattr__(name)
        except AttributeError:
            if name.startswith("no_"): raise
            return getattr(super().__getattr__("inner"), name)

class Slotted:
    __slots__ = ("p", "q", "__dict__")
    r = 5
    def __init__(self): self.p = 1

class OnlySlots:
    __slots__ = ("p", "q")
    def __init__(self): self.p = 1

class Once:
    """A descriptor without `__set__`: what an instance stores hides it."""
    def __set_name__(self, owner, name): self.name = name
    def __get__(self, obj, kind=None):
        if obj is None: return self
        value = vars(obj)[self.name] = len(vars(obj)) + 10
        return value

class Lazy:
    once = Once()
    def __init__(self): self.base = 1
    @functools.cached_property
    def kept(self): return self.base + 1
    def __getattr__(self, name):
        if name == "derived": return self.base * 3
        raise AttributeError(f"no {name}")

NET, PART, SLOTTED, LAZY, FALLBACK, ONLY = Net(), Part(), Slotted(), Lazy(), Fallback(), OnlySlots()

def echo(log, limit=3):
    """Says what is sent and thrown into it."""
    got = None
    for turn in range(limit):
        try:
            got = yield (turn, got)
        except (ValueError, KeyError) as e:
            log.append(("echo caught", repr(e))); got = "thrown"
        else:
            log.append(("echo", shown(got)))
    return ("end", shown(got))

def through(log, inner):
    try:
        result = yield from inner
        log.append(("through", result))
    except RuntimeError as e:
        log.append(("through caught", str(e))); yield "recovered"
    finally:
        log.append("through finally"); brk()
    return "through"

def guarded(log, inner, *kinds):
    with Quiet(log, *kinds), scope(log, "guarded"):
        for v in inner:
            yield v
            brk()
    yield "behind"

def raising(v, kind, at=1):
    for i in range(3):
        if i == at: raise kind(f"at {i}")
        yield v + i

def stubborn(log):
    try: yield 1; yield 2
    except GeneratorExit: log.append("asked"); brk(); return
    finally: log.append("stubborn done")

def rethrowing(log):
    try: yield 1
    except Exception as e: brk(); raise AppError("re") from e
    finally: log.append("rethrown")

def drained(log, it):
    while True:
        try: log.append(shown(next(it)))
        except StopIteration as stop: return stop.value
        except Exception as e: log.append((type(e).__name__, str(e), type(e.__cause__).__name__, type(e.__context__).__name__)); return "failed"
'''

GENERATORS = (
    "log.append(drained(log, through(log, echo(log))))",
    "log.append(drained(log, through(log, raising(n, RuntimeError))))",
    "log.append(drained(log, through(log, raising(n, ValueError, @K))))",
    "log.append(drained(log, raising(n, StopIteration)))",
    "log.append(drained(log, guarded(log, raising(n, ValueError), ValueError)))",
    "log.append(drained(log, guarded(log, raising(n, KeyError, 0), ValueError)))",
    "log.append(drained(log, guarded(log, gen(a, 2), IndexError)))",
    "g = echo(log); next(g); brk(); log.append(g.send(n)); log.append(g.throw(ValueError('t'))); g.close()",
    "g = echo(log, 2); log.append(g.send(None)); log.append(g.throw(KeyError, KeyError('k'))); brk(); log.append(next(g, 'end'))",
    "g = through(log, echo(log)); next(g); log.append(g.send(a)[0]); g.close(); log.append(next(g, 'closed'))",
    "g = through(log, echo(log)); next(g); log.append(g.throw(RuntimeError('r'))); log.append(next(g, 'over'))",
    "g = stubborn(log); next(g); brk(); g.close(); g.close()",
    "g = stubborn(log); log.append([*zip(g, 'a')]); del g; log.append('deleted')",
    "g = rethrowing(log); next(g)\ntry: g.throw(KeyError('in'))\nexcept AppError as e: log.append((str(e), repr(e.__cause__), type(e.__context__).__name__))",
    "g = rethrowing(log)\ntry: g.throw(KeyError('unstarted'))\nexcept KeyError as e: log.append(e.args)",
    "g = rethrowing(log); next(g); g.close(); log.append(next(g, 'none'))",
    "def once():\n    try:\n        brk(); yield n\n        yield opaque(n) + 1\n    except BaseException as e: log.append(type(e).__name__); raise\n    finally:\n        log.append('once'); brk()\ng = once(); log.append(next(g)); g.close(); log.append([*once()])",
    "def nested():\n    for i in range(3):\n        try:\n            try: yield i\n            finally: log.append(('inner', i))\n            if i == @K - 1: raise KeyError(i)\n        except KeyError as e: log.append(repr(e)); continue\n        finally: log.append(('outer', i))\n    return n\nlog.append(drained(log, nested()))",
    "def nested():\n    try: yield from raising(a, ZeroDivisionError)\n    except ZeroDivisionError as e:\n        log.append(str(e)); brk(); got = yield 'in handler'\n        log.append((got, str(e)))\n    yield 'last'\ng = nested(); log.append([shown(next(g)) for _ in range(2)]); log.append(g.send(n)); log.append(next(g, 0))",
    "def nested():\n    with scope(log, 'w') as w:\n        got = yield w\n        if got: raise KeyError(got)\n    yield 'after with'\ng = nested(); log.append(next(g)); log.append(g.send(n % 2)); g.close()",
    "def swap():\n    nonlocal n\n    try:\n        n += 1; yield n\n    finally: n -= @K\nfor v in swap():\n    log.append(v); brk()\n    if v > 2: break\nlog.append(n)",
    "def early():\n    try:\n        yield 1\n        return 'normal'\n    finally:\n        log.append('cleanup')\n        if n % 2: return 'replaced'\ng = early(); next(g)\ntry: next(g)\nexcept StopIteration as s: log.append(s.value)",
    "try: log.append([v for v in raising(n, KeyError, 2)])\nexcept KeyError as e: brk(); log.append((str(e), e.__context__))",
    "try:\n    for v in raising(a, ValueError): a = v\nexcept ValueError: a = a + @K\nelse: log.append('no')\nfinally: brk()",
    "log.append(sum((v for v in raising(n, IndexError, 9)), 0)); log.append(max(raising(n, IndexError, 9)))",
    "g = (opaque(v) for v in raising(n, LookupError, 2)); log.append(next(g))\ntry: log.append([*g])\nexcept LookupError as e: log.append(type(e).__name__)\nlog.append([*g])",
    "it = map(lambda v: 1 // v, (1, 0, 2)); log.append(next(it))\ntry: next(it)\nexcept ZeroDivisionError: brk(); log.append([*it])",
    "it = zip(echo(log), raising(n, KeyError))\ntry:\n    for p, q in it: log.append((p, q))\nexcept KeyError: log.append('zip over')",
    "with contextlib.closing(echo(log)) as g:\n    next(g); log.append(g.send('c')); brk()",
    "with contextlib.suppress(RuntimeError):\n    def bad():\n        try: yield 1\n        except GeneratorExit: yield 2\n    g = bad(); next(g); g.close(); log.append('not here')",
    "try:\n    g = echo(log); g.send(1)\nexcept TypeError as e: text.append(str(e))",
    "def me():\n    try: next(it)\n    except ValueError as e: log.append(str(e))\n    yield 1\nit = me(); log.append([*it])",
    "import inspect; g = echo(log); log.append(inspect.getgeneratorstate(g)); next(g); log.append(inspect.getgeneratorstate(g)); g.close(); log.append(g.gi_frame is None)",
    "p, q = itertools.tee(raising(n, KeyError, 2)); log.append(next(p)); brk(); log.append((next(q), next(q)))",
    "log.append(list(itertools.chain(gen(n, 1), raising(n, ValueError, 9)))); log.append(dict(enumerate(echo(log, 2))))",
    "first, *rest = echo(log); log.append((first, rest))",
    "try: p, q = raising(n, KeyError, 2)\nexcept (ValueError, KeyError) as e: log.append(repr(e))",
    "log.append(any(v == n + 1 for v in raising(n, KeyError, 2))); log.append((n + 1) in raising(n, KeyError, 2))",
    "@contextlib.contextmanager\ndef both(v):\n    with Quiet(log, KeyError):\n        yield v\n        brk()\n    log.append('both over')\nwith both(n) as v:\n    log.append(v)\n    if n % 2: raise KeyError('odd')",
    "@contextlib.contextmanager\ndef twice():\n    yield 1\n    yield 2\ntry:\n    with twice(): brk()\nexcept RuntimeError as e: text.append(str(e))",
    "@contextlib.contextmanager\ndef never():\n    return\n    yield\ntry:\n    with never(): pass\nexcept RuntimeError as e: text.append(str(e))",
)
VIEWS = (
    "a = x.view(-1); b = x[0]",
    "a = x; b = x",
    "a = x[1:]; a.add_(@K)",
    "b = y.t(); b.mul_(2); a = b[0]",
    "v = a.view(-1) if a.is_contiguous() else a; v += 1; log.append(v)",
    "log.append(a[0] if a.dim() else a); log.append(a)",
    "a = a.clone(); b = a.view_as(a); b.add_(1); log.append(b[:1] if b.dim() else b)",
    "b = a.detach(); b.add_(@K)",
    "a = a.unsqueeze(0); log.append(a.squeeze(0))",
    "a, b = b, a; log.append((a, b, a))",
    "v = x.expand(2, *x.shape); a = v[0]; log.append(v)",
    "v = torch.zeros(4); p, q = v.split(2); p += 1; q.copy_(p); log.append((v, p, q))",
    "v = torch.zeros(3, 3); v.diagonal().fill_(@K); log.append(v.diagonal()); a = a.sum() + v",
    "brk(); b = x[:1]; brk(); b.zero_(); a = x[0]",
    "z.add_(1); a = z; log.append(z[0])",
    "z[0].mul_(@K); b = z.t()",
    "STATE['tensor'] = a; log.append(STATE['tensor'])",
    "STATE['tensor'] = x.view(-1); STATE['tensor'].sub_(1)",
    "BOX.value = x[0]; log.append(BOX.value); BOX.value.add_(1)",
    "log.extend(x.unbind(0)[:2]); x.mul_(1.5)",
    "w = a.contiguous(); log.append(w); log.append(w is a)",
    "w = a.to(torch.float32); w.add_(1); log.append(w); w = a.float(); log.append(w is a)",
    "w = a.reshape(a.shape); w.mul_(2); log.append(w); log.append(a.reshape(-1))",
    "w = x.flatten(); w[0] = n; b = w",
    "w = torch.as_strided(x, (2,), (1,)); w.add_(n); log.append(w)",
    "w = x.T.contiguous(); w.add_(1); log.append(w.T)",
    "w = x.chunk(2); w[0].add_(w[0].mean()); a = w[0]; log.append(w[-1])",
    "w = torch.atleast_2d(a); log.append(w); w = torch.broadcast_tensors(x, x[:1]); log.append(w[0]); log.append(w[0] is x)",
    "w = x.narrow(0, 0, 1); w.copy_(y[:1]); log.append(w)",
    "w = a.view(torch.int32) if a.is_contiguous() else a; log.append(w)",
    "w = a.real; log.append(w); log.append(w is a)",
    "x.data.add_(1); a = x.data; log.append(x.data)",
    "x.set_(y) if n < -1e9 else x.copy_(y); b = x.detach()",
    "v = x.swapaxes(0, 1); v -= 1; a = v.mT; log.append(v)",
    "v = torch.ones(2, 3); log.append(v); log.append(v[0]); brk(); v[0] += n; log.append(v[:, 0])",
    "v = [x[i] for i in range(2)]; v[0] += v[1]; log += v",
    "v = x[[0, 1]]; v.add_(1); log.append(v); x[[0, 1]] = v",
    "v = x.squeeze(); v.add_(1); log.append(v); log.append(v is x)",
    "out = x[0]; torch.add(y[0], @K, out=out); log.append(out)",
    "torch.mul(y, 2, out=x); a = x; b = x[-1]",
    "v = y.view(y.shape[0], 3, 1); v.transpose_(0, 2); log.append(v)",
    "y.t_() if y.shape[0] == 3 else y.unsqueeze_(0).squeeze_(0); b = y",
    "v = x.unfold(0, 2, 1); v[0].add_(1); log.append(v.shape)",
    "v = a.numpy() if not a.requires_grad else None; a.add_(1); log.append(v)",
    "log.append(np.asarray(x)); x.add_(@K)",
    "v = torch.from_numpy(np.ones(3, dtype=np.float32)); v += 1; log.append(v.numpy())",
    "log.append(x.tolist()[:1]); x.zero_(); log.append(x[0])",
    "def write(t): t += 1; return t.view(-1)\nlog.append(write(a)); b = write(b)",
    "x += y; y -= x; z *= 2; log.append((x, y[0], z))",
    "v = torch.empty_like(x); v[:] = x; v[0, 0] = n; log.append(v); a = v.T",
    "v = x.masked_fill(x > 0, 0); x.masked_fill_(x > 1, @K); log.append(v); b = x[:, :2]",
    "v = torch.nn.functional.relu(x[:1], inplace=True); log.append(v)",
    "v = torch.nn.functional.dropout(a, training=False); log.append(v); log.append(v is a)",
    "w = x.index_select(0, torch.tensor([0])); x.index_add_(0, torch.tensor([0]), w); log.append(w)",
    "w = torch.stack([x, y]); w[0].add_(w[1]); a = w[0]; b = w[1]",
    "w = a.requires_grad_(False); log.append(w is a); log.append(w)",
    "w = y.detach().clone().requires_grad_(); v = (w * 2)[0]; log.append(v); v.sum().backward(); log.append(w.grad)",
    "with torch.no_grad(): v = x.view(-1); v.add_(1)\nlog.append(v)",
)
ATTRIBUTES = (
    "a = NET(x).detach()",
    "a = a.sum() + PART(x).detach()",
    "b = FALLBACK.inner(y).detach(); log.append(hasattr(FALLBACK, 'no_one')); log.append(FALLBACK.depth)",
    "log.append(hasattr(NET, 'use')); log.append(getattr(NET, 'use', 'absent'))",
    "log.append(hasattr(PART, 'bias')); a = a + getattr(PART, 'bias', @K)",
    "try: log.append(PART.extra)\nexcept AttributeError as e: text.append(str(e))",
    "try: log.append(NET.failing)\nexcept AttributeError as e: text.append(str(e))",
    "log.append(NET.shown); NET.late_name = f'n{n}'; log.append(NET.shown); del NET.late_name",
    "log.append(PART.none is None); log.append('none' in PART._buffers); log.append('extra' in vars(PART))",
    "PART.seen = PART.seen + 1; a = a + PART.seen.sum()",
    "PART.seen.add_(@K); log.append(PART.seen)",
    "log.append([k for k, _ in PART.named_buffers()]); log.append([k for k, _ in PART.named_parameters()])",
    "log.append(sorted(NET.state_dict())); log.append(len(list(NET.modules())))",
    "log.append([k for k, _ in NET.named_children()]); log.append('p' in NET.named); log.append(len(NET.parts))",
    "n += NET.parts[0].depth + Part.depth; log.append(hasattr(Part, 'width'))",
    "PART.options['k'] += 1; log.append(PART.options); log.append(getattr(PART, 'options', {}).get('late'))",
    "PART.counter = getattr(PART, 'counter', 0) + 1; log.append(PART.counter)",
    "PART.temp = a; log.append(hasattr(PART, 'temp')); brk(); b = PART.temp + 1; del PART.temp; log.append(hasattr(PART, 'temp'))",
    "setattr(PART, 'p@K', n); log.append(getattr(PART, 'p@K')); delattr(PART, 'p@K')",
    "PART.register_buffer('made', x[0].clone()); a = a + PART.made.sum(); log.append('made' in dict(PART.named_buffers())); del PART.made",
    "PART.none = torch.ones(3) if PART.none is None else None; log.append(PART.none is None)",
    "try: PART.w = 3\nexcept TypeError as e: text.append(str(e))",
    "try: PART.nothing_@K\nexcept AttributeError as e: text.append((str(e), e.name))",
    "try: NET.parts[7]\nexcept IndexError as e: text.append(str(e))",
    "try: NET.named['q']\nexcept KeyError as e: text.append(str(e))",
    "try: del PART.nothing\nexcept AttributeError as e: text.append(type(e).__name__)",
    "log.append(PART.training); PART.eval(); log.append(PART.training); PART.train()",
    "log.append(hasattr(SLOTTED, 'q')); log.append(getattr(SLOTTED, 'q', @K)); log.append(SLOTTED.r)",
    "SLOTTED.q = n; log.append(SLOTTED.q); brk(); del SLOTTED.q\ntry: SLOTTED.q\nexcept AttributeError as e: log.append('q gone')",
    "SLOTTED.s = n; log.append(vars(SLOTTED)); del SLOTTED.s; log.append(hasattr(SLOTTED, 's'))",
    "log.append(getattr(ONLY, 'q', 'unset')); log.append(hasattr(ONLY, '__dict__')); ONLY.p += 1; log.append(ONLY.p)",
    "try: ONLY.z = 1\nexcept AttributeError as e: log.append(type(e).__name__)",
    "try: ONLY.q\nexcept AttributeError as e: text.append(str(e))",
    "v = OnlySlots(); log.append(hasattr(v, 'q')); v.q = a; a = v.q + 1; del v.p; log.append(hasattr(v, 'p'))",
    "log.append(LAZY.derived); log.append(hasattr(LAZY, 'absent')); log.append(getattr(LAZY, 'absent', None))",
    "log.append(LAZY.once); log.append('once' in vars(LAZY)); vars(LAZY).pop('once', None)",
    "log.append(LAZY.kept); log.append(sorted(vars(LAZY))); vars(LAZY).pop('kept', None)",
    "v = Lazy(); v.base = n; log.append((v.kept, v.derived, v.once, v.kept)); v.__dict__['kept'] = 'set'; log.append(v.kept)",
    "try: LAZY.absent\nexcept AttributeError as e: text.append(str(e))",
    "LAZY.derived = n; log.append(LAZY.derived); brk(); del LAZY.derived; log.append(LAZY.derived)",
    "Lazy.width = n; log.append(LAZY.width); del Lazy.width; log.append(hasattr(LAZY, 'width'))",
    "log.append(type(NET).__name__); log.append(isinstance(PART, torch.nn.Module)); log.append(NET.one is NET.parts[0])",
    "NET.one.extra = n; a = NET(x).detach(); del NET.one.extra",
    "v = Part(); v.bias = n; a = a.sum() + v(x).detach().sum(); log.append(v.depth)",
    "log.append(sum(p.numel() for p in NET.parameters())); log.append(NET.get_parameter('one.w').shape)",
    "log.append(np.__name__); log.append(hasattr(np, 'nothing_@K')); log.append(getattr(torch, 'nothing_@K', n)); log.append(hasattr(torch.ops.aten, 'no_operator'))",
    "x.mark = n; log.append(x.mark); log.append(hasattr(x, 'other_mark')); del x.mark; log.append(getattr(x, 'mark', None))",
    "def fn(): pass\nfn.mark = n; log.append(getattr(fn, 'mark', 0)); del fn.mark; log.append(hasattr(fn, 'mark'))",
    "log.append(operator.attrgetter('one.depth')(NET)); log.append(operator.attrgetter('depth')(PART))",
)
NUMPY = (
    "a = a * np.float32(@K) + np.int64(2)",
    "a = np.float64(1.5) * a; log.append(a.dtype)",
    "a = torch.add(x, np.int32(@K)); a = torch.mul(a, np.float32(0.5)); a = a + np.bool_(True)",
    "b = torch.clamp(y, min=np.float64(-1), max=np.float32(1)); b = b ** np.int64(2)",
    "v = torch.full((2,), np.float64(@K)); log.append(v.dtype); v = torch.full((2,), np.int64(@K)); log.append(v.dtype)",
    "v = torch.full((np.int64(2), 3), n); log.append(tuple(v.shape)); v = torch.zeros(np.int32(2)); log.append(v)",
    "v = torch.arange(np.int64(@K)); log.append(v.dtype); v = torch.arange(np.float32(3)); log.append(v.dtype)",
    "v = torch.arange(np.int64(1), 5, np.int64(2)); log.append(v); v = torch.linspace(np.float64(0), 1, np.int64(3)); log.append(v)",
    "v = torch.tensor(np.float64(1.5)); log.append(v); v = torch.tensor(np.int32(3)); log.append(v); v = torch.tensor([np.float32(1), 2]); log.append(v)",
    "v = torch.tensor(np.array([1, 2])); log.append(v); v = torch.as_tensor(np.ones(2)); log.append(v.dtype); v = torch.asarray(np.float32(2)); log.append(v.dtype)",
    "a = x[np.int64(0)]; b = y[:np.int64(2), np.int32(1)]",
    "log.append(x[np.array([0, 1])]); log.append(x[np.array([True, False, True])[:x.shape[1]].tolist().index(True)])",
    "v = x.sum(np.int64(1)); log.append(v); v = x.view(np.int64(-1)); log.append(v.shape); v = x.reshape((np.int64(x.shape[0]), -1)); log.append(v.shape)",
    "v = x.transpose(np.int64(0), np.int64(1)); log.append(v.shape); v = x.repeat(np.int64(2), 1); log.append(v.shape)",
    "log.append(torch.zeros(2, dtype=torch.float64).numpy().dtype); log.append(x.numpy().sum(0).dtype)",
    "try: log.append(torch.zeros(2, dtype=int).dtype)\nexcept TypeError as e: log.append('refused')",
    "try: log.append(torch.ones(2, dtype=float).dtype)\nexcept TypeError as e: log.append('refused')",
    "try: log.append(torch.zeros(2, dtype=bool).dtype)\nexcept TypeError as e: log.append('refused')",
    "try: log.append(torch.zeros(2, dtype=np.float32).dtype)\nexcept TypeError as e: log.append('refused')",
    "try: log.append(x.to(int).dtype)\nexcept TypeError as e: log.append('refused')",
    "try: log.append(x.to(float).dtype); log.append(x.to(bool).dtype)\nexcept TypeError as e: log.append('refused')",
    "try: log.append(x.type(int))\nexcept (TypeError, RuntimeError) as e: log.append('refused')",
    "log.append(x.sum(dtype=float).dtype); log.append(x.mean(dtype=float).dtype)",
    "log.append(torch.tensor([1], dtype=float).dtype); log.append(torch.tensor([1.5], dtype=int)); log.append(torch.arange(3, dtype=float))",
    "log.append(torch.finfo(x.dtype).max); log.append(torch.finfo(x.dtype).eps); log.append(torch.iinfo(torch.int8).min); log.append(torch.finfo(torch.bfloat16).bits)",
    "log.append(torch.finfo(x.dtype).dtype); log.append(torch.finfo().tiny); log.append(str(torch.iinfo(torch.int32))); log.append(torch.finfo(x.dtype) == torch.finfo(torch.float32))",
    "a = a.masked_fill(a > 5, torch.finfo(a.dtype).min).clamp(min=-9); log.append(a.dtype.itemsize); log.append(a.dtype.is_complex)",
    "log.append(np.finfo(np.float32).max); log.append(np.iinfo(np.int64).max); log.append(np.dtype('float32').itemsize)",
    "v = np.ones((2, 3), dtype=np.float32); w = torch.from_numpy(v) * 2; log.append(w); log.append(w.numpy()[::-1].copy())",
    "v = x.numpy(); log.append(v[::-1].copy()); log.append(v[:, ::-1].sum()); log.append(v.T.shape)",
    "v = np.arange(6).reshape(2, 3); log.append(v[::-1]); log.append(v[:, ::-2]); log.append(v[-1:0:-1, ::-1]); v[::-1] += 1; log.append(v)",
    "v = np.arange(float(x.shape[0])); log.append(np.flip(v)); log.append(v[::-1].mean()); log.append(np.cumsum(v)[::-@K])",
    "v = np.float32(@K) / np.int64(2); log.append(v); log.append(type(v).__name__); log.append(np.sqrt(v)); log.append(round(float(v), 2))",
    "log.append(np.int64(n) + n); log.append(np.float64(n) // 2); log.append(int(np.int32(n)) % 3); log.append(bool(np.bool_(n)))",
    "log.append(isinstance(np.float64(1), float)); log.append(isinstance(np.int64(1), int)); log.append(np.isscalar(n))",
    "log.append(np.mean([n, 1, 2])); log.append(np.prod(x.shape)); log.append(np.max([n, @K])); log.append(np.array([n, 2]).tolist())",
    "v = np.zeros(x.shape); v[0] = n; a = a.sum() + torch.tensor(v).float(); log.append(v.shape)",
    "v = torch.randn(2, generator=torch.Generator().manual_seed(np.int64(@K).item())); log.append(v)",
    "log.append(round(x.sum().item(), 2)); log.append(round(x[0, 0].item())); log.append(round(x.mean().item(), -1)); log.append(round(a.sum().item() * 0 + 2.675, @K))",
    "v = torch.topk(x, np.int64(2)); log.append(v.indices); log.append(torch.split(x, np.int64(2))[0]); log.append(torch.chunk(x, np.int64(2))[0])",
    "v = torch.where(x > np.float32(0), np.float64(1), 0.0); log.append(v.dtype); log.append((x == np.float32(0)).sum()); log.append((np.int64(2) * x).dtype)",
    "v = torch.nn.functional.pad(x, (np.int64(1), 0)); log.append(v.shape); v = torch.nn.functional.one_hot(torch.tensor([0, 1]), np.int64(3)); log.append(v)",
    "log.append(x.dtype == torch.float); log.append(torch.promote_types(torch.int64, x.dtype)); log.append(torch.result_type(x, 1.5)); log.append(torch.result_type(torch.tensor([1]), np.float64(1)))",
    "log.append(torch.can_cast(torch.float32, torch.int32)); log.append(torch.get_default_dtype()); log.append(x.new_tensor(np.array([1, 2])).dtype); log.append(x.new_full((2,), np.int64(3)).dtype)",
    "log.append(np.array(x.shape)); log.append(np.asarray(x.tolist()).shape); log.append(np.dtype(np.float32) == x.numpy().dtype)",
)
NAMED = {"generators": GENERATORS, "views": VIEWS, "attributes": ATTRIBUTES, "numpy": NUMPY}

# What is done to the program's module `m` at the seed's call, and taken back at the next one.
CHANGES = (
    ("m.PART.bias = 2", "del m.PART.bias"),
    ("m.PART.extra = 3.0", "del m.PART.extra"),
    ("m.NET.use = False", "del m.NET.use"),
    ("m.NET.late_name = 'late'", "m.NET.__dict__.pop('late_name', None)"),
    ("m.PART.none = m.torch.ones(3)", "m.PART.none = None"),
    ("m.PART.register_buffer('late', m.torch.ones(3)); m.PART.bias = m.PART.late", "del m.PART.late, m.PART.bias"),
    ("m.PART.w = m.torch.nn.Parameter(m.torch.full((3,), 2.0))", "m.PART.w = m.torch.nn.Parameter(m.torch.ones(3))"),
    ("m.PART.seen = m.torch.ones(3) * 4", "m.PART.seen = m.torch.zeros(3)"),
    ("m.Part.depth = 5", "m.Part.depth = 1"),
    ("m.Part.width = 5; m.Part.bias = 1", "del m.Part.width, m.Part.bias"),
    ("m.NET.parts.append(m.Part())", "del m.NET.parts[-1]"),
    ("m.NET.named['q'] = m.Part()", "del m.NET.named['q']"),
    ("m.NET.one = m.NET.parts[0]", "m.NET.one = m.Part()"),
    ("m.SLOTTED.q = 4; m.ONLY.q = 5", "[delattr(o, 'q') for o in (m.SLOTTED, m.ONLY) if hasattr(o, 'q')]"),
    ("m.Slotted.r = 6; m.SLOTTED.s = 1", "m.Slotted.r = 5; m.SLOTTED.__dict__.pop('s', None)"),
    ("m.LAZY.absent = 1; m.LAZY.base = 4", "del m.LAZY.absent; m.LAZY.base = 1"),
    ("m.Lazy.absent = 1", "del m.Lazy.absent"),
    ("m.FALLBACK.no_one = 1; m.FALLBACK.inner.depth = 7", "del m.FALLBACK.no_one, m.FALLBACK.inner.depth"),
    (
        "m.Part.forward_ = m.Part.forward; m.Part.forward = lambda s, t: t - 1",
        "m.Part.forward = m.Part.forward_; del m.Part.forward_",
    ),
    ("m.np.nothing_1 = m.torch.nothing_1 = 1", "del m.np.nothing_1, m.torch.nothing_1"),
    ("m.PART.eval()", "m.PART.train()"),
    ("m.PART.options = {'k': 1, 'late': 2}", "m.PART.options = {'k': 1}"),
)
