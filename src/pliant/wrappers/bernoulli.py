"""C text of `pliant_bernoulli`: draws as PyTorch's generator for the CPU makes them, many words at a time.

In:     the bytes of a generator's state, which it writes; memory for floats, how many, and the probability in 2^-53.
Out:    1.0 where a draw of 53 bits is below the probability, else 0.0; the state as PyTorch leaves it.
Holds:  the words, their order and the state are those of PyTorch: `runtime.random_draws` compares before it relies on it.
        Words beyond those of a float's lanes are little-endian pairs: on other machines the comparison fails.
Source: Matsumoto and Nishimura, Mersenne Twister, 1998; the recurrence reaches back 227 words, so 16 are made at once.
"""

BERNOULLI = """\
typedef uint32_t p_u16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef struct { uint64_t seed; int32_t left, seeded; uint64_t next, words[624]; } p_generator;
P_INLINE uint32_t p_twist(uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t y = (a & 0x80000000u) | (b & 0x7fffffffu);
  return c ^ y >> 1 ^ (-(y & 1) & 0x9908b0dfu);
}
static void p_twists(uint32_t* s, int from, int to, int ahead) {
  int k = from;
  for (; k + 16 <= to; k += 16) {
    const p_u16 a = *(p_u16*)(s + k), b = *(p_u16*)(s + k + 1), y = (a & 0x80000000u) | (b & 0x7fffffffu);
    *(p_u16*)(s + k) = *(p_u16*)(s + k + ahead) ^ y >> 1 ^ (-(y & 1) & 0x9908b0dfu);
  }
  for (; k < to; k++) s[k] = p_twist(s[k], s[k + 1], s[k + ahead]);
}
static void p_next_words(uint32_t* s) {
  p_twists(s, 0, 227, 397);
  p_twists(s, 227, 623, -227);
  s[623] = p_twist(s[623], s[0], s[396]);
}
static void p_tempered(const uint32_t* s, uint32_t* out) {
  for (int k = 0; k < 624; k += 16) {
    p_u16 y = *(const p_u16*)(s + k);
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    *(p_u16*)(out + k) = y ^ y >> 18;
  }
}
typedef uint64_t p_pairs __attribute__((vector_size(64), aligned(4), may_alias));
typedef int64_t p_signs __attribute__((vector_size(64)));
typedef int32_t p_ones __attribute__((vector_size(32), aligned(4), may_alias));
P_INLINE int64_t p_value(uint32_t first, uint32_t second) { return (int64_t)((uint64_t)(first & 0x1fffff) << 32 | second); }
static void p_compare(const uint32_t* words, int64_t n, int64_t below, float* out) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const p_pairs x = *(const p_pairs*)(words + 2 * i);
    const p_signs less = (p_signs)((x & 0x1fffff) << 32 | x >> 32) < below;
    *(p_ones*)(out + i) = __builtin_convertvector(less, p_ones) & 0x3f800000;
  }
  for (; i < n; i++) out[i] = p_value(words[2 * i], words[2 * i + 1]) < below;
}
// `left` words of `t` less one have not been drawn; new ones are made when the last has been.
PyObject* pliant_bernoulli(PyObject* self, PyObject* const* args, int64_t count) {
  uint32_t s[624], t[624];
  void* p[2];
  if (p_addresses(args, 2, p)) return 0;
  const int64_t n = PyLong_AsLongLong(args[2]), below = PyLong_AsLongLong(args[3]);
  if (PyErr_Occurred()) return 0;
  p_generator* g = p[0];
  for (int k = 0; k < 624; k++) s[k] = (uint32_t)g->words[k];
  p_tempered(s, t);
  float* out = p[1];
  int64_t left = g->left, next = (int64_t)g->next;
  for (int64_t i = 0; i < n;) {
    const int64_t many = p_min(n - i, (left - 1) / 2);
    p_compare(t + next, many, below, out + i);
    i += many; next += 2 * many; left -= 2 * many;
    uint32_t word[2];
    for (int k = 0; k < 2 && i < n; k++) {
      if (--left == 0) { p_next_words(s); p_tempered(s, t); left = 624; next = 0; }
      word[k] = t[next++];
      if (k) out[i++] = p_value(word[0], word[1]) < below;
    }
  }
  for (int k = 0; k < 624; k++) g->words[k] = s[k];
  g->left = (int32_t)left; g->next = (uint64_t)next;
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}
"""
