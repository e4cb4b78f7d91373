"""C text of `pliant_fingerprint`: 64 bits that tell whether memory holds what it held before.

In:     a tensor (or its address) and how many bytes from its start on count.
Out:    a Python integer.
Holds:  a change of one word always shows, since each step maps the state one to one; any other change is missed once in
        2^64. It depends on the bytes alone, not on how many threads read them.
Units:  memory is read once, at its bandwidth.
"""

FINGERPRINT = """\
typedef uint64_t p_words __attribute__((vector_size(64), aligned(1), may_alias));
enum { P_BLOCK = 1 << 16, P_BLOCKS = 1024 };
static uint64_t p_stir(uint64_t h, uint64_t x) { h = (h ^ x) * 0x9FB21C651E98DF25ull; return h ^ h >> 32; }
static uint64_t p_digest(const char* data, int64_t size) {
  p_words h[4];
  for (int k = 0; k < 4; k++) for (int l = 0; l < 8; l++) h[k][l] = 0x9E3779B97F4A7C15ull * (uint64_t)(8 * k + l + 1);
  int64_t at = 0;
  for (; at + 256 <= size; at += 256) {
    #pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
      h[k] = (h[k] ^ *(const p_words*)(data + at + 64 * k)) * 0x9FB21C651E98DF25ull;
      h[k] ^= h[k] >> 32;
    }
  }
  uint64_t result = (uint64_t)size;
  for (int k = 0; k < 4; k++) for (int l = 0; l < 8; l++) result = p_stir(result, h[k][l]);
  for (; at < size; at += 8) {
    uint64_t x = 0;
    __builtin_memcpy(&x, data + at, p_min(8, size - at));
    result = p_stir(result, x);
  }
  return result;
}
// n: bytes, bytes of a block. p: data, the digests of the blocks.
static void p_digests(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t part, int32_t* error) {
  for (int64_t k = begin; k < end; k++)
    ((uint64_t*)p[1])[k] = p_digest((const char*)p[0] + k * n[1], p_min(n[1], n[0] - k * n[1]));
}
PyObject* pliant_fingerprint(PyObject* self, PyObject* const* args, int64_t count) {
  uint64_t digests[P_BLOCKS];
  void* p[2] = {0, digests};
  if (p_addresses(args, 1, p)) return 0;
  const int64_t size = PyLong_AsLongLong(args[1]);
  if (PyErr_Occurred()) return 0;
  int64_t n[2] = {size, P_BLOCK}, blocks;
  while ((blocks = (size + n[1] - 1) / n[1]) > P_BLOCKS) n[1] *= 2;
  void* const state = size > P_BLOCK ? PyEval_SaveThread() : 0;
  p_run(p_digests, p, n, blocks, 8, blocks, 0);
  if (state) PyEval_RestoreThread(state);
  return PyLong_FromUnsignedLongLong(p_digest((const char*)digests, blocks * 8));
}
"""
