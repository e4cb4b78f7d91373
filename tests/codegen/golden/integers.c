static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const int64_t* const a0 = p[0];
  int64_t* const a1 = p[1];
  #pragma omp simd
  for (int64_t i0 = begin; i0 < end; i0++) {
    const int64_t t0 = a0[i0];
    const int64_t t1 = (t0 / 3 - ((t0 % 3 != 0) & ((t0 < 0) != (3 < 0))));
    const int64_t t2 = (t1 % 5 + (5 & -((t1 % 5 != 0) & ((t1 % 5 < 0) != (5 < 0)))));
    const int64_t t3 = t0 << 1;
    const int64_t t4 = t2 + t3;
    a1[i0] = t4;
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 64;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 30), 64, p_error);
}
