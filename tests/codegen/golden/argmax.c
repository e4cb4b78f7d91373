static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  int64_t* const a1 = p[1];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i0 = t;
    float acc0 = (-INFINITY);
    int64_t acc0k = INT64_C(9223372036854775807);
    for (int64_t i1 = 0; i1 < 96; i1++) {
      const float t0 = a0[96*i0 + i1];
      if ((t0 != t0 && (acc0 == acc0 || (i1) < acc0k)) || (acc0 == acc0 && (t0 > acc0 || (t0 == acc0 && (i1) < acc0k)))) { acc0 = t0; acc0k = (i1); }
    }
    const int64_t r0 = acc0k;
    a1[i0] = r0;
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 8;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 288), 64, p_error);
}
