static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  float* const a1 = p[1];
  double acc0 = 0;
  for (int64_t b = begin; b < end; b += 2048) {
    const int64_t be = p_min(b + 2048, end);
    p_vf vacc0[4];
    for (int u = 0; u < 4; u++) vacc0[u] = P_B(0.0f);
    {
      int64_t ji0 = b;
      for (; ji0 + 4 * P_L <= be; ji0 += 4 * P_L) {
        #pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
          const int64_t i0 = ji0 + u * P_L;
          const p_vf t0 = p_load(&a0[i0]);
          const p_vf xacc0 = t0;
          vacc0[u] = vacc0[u] + xacc0;
        }
      }
      for (; ji0 < be; ji0 += P_L) {
        const int64_t i0 = ji0;
        const p_vi m = p_upto(be - i0);
        const p_vf t1 = p_load_part(&a0[i0], m);
        const p_vf xacc0 = p_choosev(m, t1, P_B(0.0f));
        vacc0[0] = vacc0[0] + xacc0;
      }
    }
    acc0 += p_sum_lanes_wide(((vacc0[0] + vacc0[1]) + (vacc0[2] + vacc0[3])));
  }
  ((double*)p[2 + 0])[slot * 1 + 0] = acc0;
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const float* const a0 = p[0];
  float* const a1 = p[1];
  double part0[64];
  void* q[] = {p[0], p[1], part0};
  const int64_t parts = p_run(@_part, q, n, 32768, 1 + 131072 / (1 + 3), 64, p_error);
  double acc0 = 0;
  for (int64_t k = 0; k < parts; k++) {
    const double oacc0 = part0[k * 1 + 0];
    acc0 += oacc0;
  }
  const float r0 = (float)acc0;
  a1[0] = r0;
}
