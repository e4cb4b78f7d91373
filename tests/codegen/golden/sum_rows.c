static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  float* const a1 = p[1];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i0 = t;
    double acc0 = 0;
    p_vf vacc0[4];
    for (int u = 0; u < 4; u++) vacc0[u] = P_B(0.0f);
    {
      int64_t ji1 = 0;
      for (; ji1 + 4 * P_L <= 2048; ji1 += 4 * P_L) {
        #pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
          const int64_t i1 = ji1 + u * P_L;
          p_load_ahead(&a0[2048*i0 + i1]);
          const p_vf t0 = p_load(&a0[2048*i0 + i1]);
          const p_vf xacc0 = t0;
          vacc0[u] = vacc0[u] + xacc0;
        }
      }
    }
    acc0 += p_sum_lanes_wide(((vacc0[0] + vacc0[1]) + (vacc0[2] + vacc0[3])));
    const float r0 = (float)acc0;
    a1[i0] = r0;
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 64;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 6144), 64, p_error);
}
