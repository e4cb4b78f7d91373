static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  float* const a1 = p[1];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i0 = t;
    float acc0 = (-INFINITY);
    int32_t acc0n = 0;
    p_vf vacc0[4];
    for (int u = 0; u < 4; u++) vacc0[u] = P_B(-P_INF);
    p_vi vacc0n[4];
    for (int u = 0; u < 4; u++) vacc0n[u] = P_BI(0);
    {
      int64_t ji1 = 0;
      for (; ji1 + 4 * P_L <= 96; ji1 += 4 * P_L) {
        #pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
          const int64_t i1 = ji1 + u * P_L;
          const p_vf t0 = p_load(&a0[96*i0 + i1]);
          const p_vf xacc0 = t0;
          vacc0[u] = p_morev(xacc0, vacc0[u]);
          vacc0n[u] |= xacc0 != xacc0;
        }
      }
#if P_L >= 16
      for (; ji1 < 96; ji1 += P_L) {
        const int64_t i1 = ji1;
        const p_vi m = p_upto(96 - i1);
        const p_vf t1 = p_load_part(&a0[96*i0 + i1], m);
        const p_vf xacc0 = p_choosev(m, t1, P_B(-P_INF));
        vacc0[0] = p_morev(xacc0, vacc0[0]);
        vacc0n[0] |= xacc0 != xacc0;
      }
#endif
    }
    { const float y = p_largest_lane((p_morev((p_morev(vacc0[3], vacc0[2])), (p_morev(vacc0[1], vacc0[0]))))); acc0 = y > acc0 ? y : acc0; }
    acc0n |= p_any_lane(vacc0n[0] | vacc0n[1] | vacc0n[2] | vacc0n[3]);
    const float r0 = (acc0n ? NAN : acc0);
    float acc1 = 0;
    p_vf vacc1[1];
    vacc1[0] = P_B(0.0f);
    {
      int64_t ji1 = 0;
      for (; ji1 + 1 * P_L <= 96; ji1 += 1 * P_L) {
        const int64_t i1 = ji1;
        const p_vf t2 = p_load(&a0[96*i0 + i1]);
        const p_vf t3 = t2 - P_B(r0);
        const p_vf t4 = p_expv(t3);
        const p_vf xacc1 = t4;
        vacc1[0] = vacc1[0] + xacc1;
      }
    }
    acc1 += p_sum_lanes(vacc1[0]);
    const float r1 = acc1;
    const float t5 = p_logf(r1);
    const float r2 = t5;
    {
      int64_t ji1 = 0;
      for (; ji1 + 1 * P_L <= 96; ji1 += 1 * P_L) {
        const int64_t i1 = ji1;
        const p_vf t6 = p_load(&a0[96*i0 + i1]);
        const p_vf t7 = t6 - P_B(r0);
        const p_vf t8 = t7 - P_B(r2);
        p_store((void*)&a1[96*i0 + i1], t8);
      }
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 8;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 3936), 64, p_error);
}
