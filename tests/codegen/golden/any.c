static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  uint8_t* const a1 = p[1];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i0 = t;
    int32_t acc0 = 0;
    p_vi vacc0[2];
    for (int u = 0; u < 2; u++) vacc0[u] = P_BI(0);
    {
      int64_t ji1 = 0;
      for (; ji1 + 2 * P_L <= 96; ji1 += 2 * P_L) {
        #pragma GCC unroll 2
        for (int u = 0; u < 2; u++) {
          const int64_t i1 = ji1 + u * P_L;
          const p_vf t0 = p_load(&a0[96*i0 + i1]);
          const p_vi t1 = t0 > P_B(0.0f);
          const p_vi xacc0 = t1;
          vacc0[u] = vacc0[u] | xacc0;
        }
      }
    }
    acc0 |= p_any_lane((vacc0[0] | vacc0[1]));
    const _Bool r0 = acc0;
    a1[i0] = r0;
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 8;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 384), 64, p_error);
}
