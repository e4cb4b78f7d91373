"""Write what a thread does in kernels that turn arrays: memory runs along one axis here and along another there.

In:     a `DevicePlan` of kind `tiles`.
Out:    lines of CUDA C: a block brings square tiles of what runs along the other axis to shared memory, in the order in which
        they lie in memory, and takes elements out of them in the order of the kernel's own points.
Holds:  rows of a tile are one element longer than it is, so that columns lie in different banks.
"""

from __future__ import annotations

from pliant.codegen.c_text import MEMORY_TYPES
from pliant.codegen.cuda.device_writer import DeviceWriter
from pliant.codegen.cuda.plan import TILE, DevicePlan
from pliant.codegen.cuda.tile import Tile
from pliant.ir.scalar import Load
from pliant.symbolic.expr import ONE, Expr
from pliant.symbolic.traverse import linear_coefficient

PITCH = TILE + 1
SHARED_BYTES = 48 << 10  # of a block, without asking for more


class DeviceTileWriter(DeviceWriter):
    """A block computes a tile of the plan's last two axes."""

    def __init__(self, plan: DevicePlan) -> None:
        super().__init__(plan)
        assert plan.tiled is not None and plan.vector is not None
        self.tiled, self.vector = plan.tiled, plan.vector
        self.along, self.across = (self.names.symbols[a.symbol] for a in (self.vector, self.tiled))
        self.staged: dict[Expr, tuple[str, Load, Expr]] = {}
        self.shared = 0

    def write(self) -> None:
        self._decompose_block()
        extent = self.vector.extent.as_int()
        limits = () if extent is not None and extent % TILE == 0 else ("cnt",)
        tile = Tile(self.vector, self.start, self.plan.width, limits, f"(ahead + u) * {PITCH} + aside")
        s = self._statements(tile)
        s.keep = self._keep
        for m in self.kernel.members:
            self._run(m, s)
        self._stage()
        self._rounds(self.plan.width, "ahead", "aside")
        self.line(f"const {self.integer} {self.across} = {self.across}t + aside;")
        self.line(f"if ({self.across} >= {self.names.text(self.tiled.extent)}) break;")
        self.line(f"const {self.integer} {self.along}b = {self.along}t + ahead;")
        if limits:
            self.line(
                f"const int cnt = (int)p_min({self.names.text(self.vector.extent)} - {self.along}b, {tile.width});"
            )
        self._emit(s)
        self.end()

    def _decompose_block(self) -> None:
        """Where the block's tile begins, and its place along the other axes."""
        rest = f"({self.integer})blockIdx.x"
        for axis, name in ((self.vector, self.along), (self.tiled, self.across)):
            count = self.names.text((axis.extent + (TILE - 1)) // TILE)
            self.line(f"const {self.integer} {name}t = ({self._remainder(rest, count)}) * {TILE};")
            self.line(f"const {self.integer} t{name} = {self._quotient(rest, count)};")
            rest = f"t{name}"
        self._decompose(rest, [a for a in self.plan.outer if a is not self.vector and a is not self.tiled])

    def _keep(self, load: Load, e: Expr) -> str | None:
        """The tile that holds a load which runs along the other axis."""
        if load.buffer in self.writers or linear_coefficient(e, self.tiled.symbol) is not ONE:
            return None
        if self.vector.symbol not in e.free or linear_coefficient(e, self.vector.symbol) is ONE:
            return None
        found = self.staged.get(e)
        if found is None or found[1].buffer is not load.buffer:
            size = TILE * PITCH * load.dtype.itemsize
            if found is not None or self.shared + size > SHARED_BYTES:
                return None
            self.shared += size
            found = self.staged[e] = (f"x{len(self.staged)}", load, e)
        return found[0]

    def _stage(self) -> None:
        """Bring the tiles to shared memory."""
        for name, load, e in self.staged.values():
            ctype, width = MEMORY_TYPES[load.dtype], min(8, 16 // load.dtype.itemsize)
            self.line(f"alignas(16) __shared__ {ctype} {name}[{TILE * PITCH}];")
            self._rounds(width, "aside", "ahead")
            self.line(
                f"const {self.integer} {self.along} = {self.along}t + ahead, {self.across} = {self.across}t + aside;"
            )
            self.line(f"alignas(16) {ctype} part[{width}];")
            there = f"{self.names.text(self.tiled.extent)} - {self.across}"
            there = f"(int)p_min({self.along} < {self.names.text(self.vector.extent)} ? {there} : 0, {width})"
            self.line(f"p_load<{width}>(part, {self.names.buffer(load.buffer)} + ({self.names.text(e)}), {there});")
            self.line("#pragma unroll")
            self.line(f"for (int u = 0; u < {width}; u++) {name}[ahead * {PITCH} + aside + u] = part[u];")
            self.end()
        self.line("__syncthreads();")

    def _rounds(self, width: int, quick: str, slow: str) -> None:
        """Each thread's places in a tile: `quick`, in steps of `width`, runs through neighbouring threads."""
        a_row = TILE // width
        self.line("#pragma unroll")
        self.begin(f"for (int k = 0; k < {TILE * a_row // self.plan.threads}; k++)")
        self.line(f"const int g = threadIdx.x + k * {self.plan.threads};")
        self.line(f"const int {quick} = g % {a_row} * {width}, {slow} = g / {a_row};")
