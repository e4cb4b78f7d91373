static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  float* const a1 = p[1];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i0 = t;
    float acc0 = (-INFINITY);
    int32_t acc0n = 0;
    p_vf vacc0[2];
    for (int u = 0; u < 2; u++) vacc0[u] = P_B(-P_INF);
    p_vi vacc0n[2];
    for (int u = 0; u < 2; u++) vacc0n[u] = P_BI(0);
    {
      int64_t ji1 = 0;
      for (; ji1 + 2 * P_L <= 96; ji1 += 2 * P_L) {
        #pragma GCC unroll 2
        for (int u = 0; u < 2; u++) {
          const int64_t i1 = ji1 + u * P_L;
          const p_vf t0 = p_load(&a0[96*i0 + i1]);
          const p_vf xacc0 = t0;
          vacc0[u] = p_morev(xacc0, vacc0[u]);
          vacc0n[u] |= xacc0 != xacc0;
        }
      }
    }
    { const float y = p_largest_lane((p_morev(vacc0[1], vacc0[0]))); acc0 = y > acc0 ? y : acc0; }
    acc0n |= p_any_lane(vacc0n[0] | vacc0n[1]);
    const float r0 = (acc0n ? NAN : acc0);
    float acc1 = 0;
    p_vf vacc1[1];
    vacc1[0] = P_B(0.0f);
    {
      int64_t ji1 = 0;
      for (; ji1 + 1 * P_L <= 96; ji1 += 1 * P_L) {
        const int64_t i1 = ji1;
        const p_vf t1 = p_load(&a0[96*i0 + i1]);
        const p_vf t2 = t1 - P_B(r0);
        const p_vf t3 = p_expv(t2);
        const p_vf xacc1 = t3;
        vacc1[0] = vacc1[0] + xacc1;
      }
    }
    acc1 += p_sum_lanes(vacc1[0]);
    const float r1 = acc1;
    const float t4 = p_logf(r1);
    const float r2 = t4;
    {
      int64_t ji1 = 0;
      for (; ji1 + 1 * P_L <= 96; ji1 += 1 * P_L) {
        const int64_t i1 = ji1;
        const p_vf t5 = p_load(&a0[96*i0 + i1]);
        const p_vf t6 = t5 - P_B(r0);
        const p_vf t7 = t6 - P_B(r2);
        p_store((void*)&a1[96*i0 + i1], t7);
      }
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 8;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 3936), 64, p_error);
}
