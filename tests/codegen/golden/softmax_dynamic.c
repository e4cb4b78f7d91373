static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  float* const a1 = p[1];
  const int64_t n0 = n[0];
  const int64_t n1 = n[1];
  const int64_t n2 = n[2];
  float* const w0 = __builtin_malloc(sizeof(float) * (n0));
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
      for (; ji1 + 4 * P_L <= n0; ji1 += 4 * P_L) {
        #pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
          const int64_t i1 = ji1 + u * P_L;
          p_load_ahead(&a0[n0*i0 + i1]);
          const p_vf t0 = p_load(&a0[n0*i0 + i1]);
          const p_vf xacc0 = t0;
          vacc0[u] = p_morev(xacc0, vacc0[u]);
          vacc0n[u] |= xacc0 != xacc0;
        }
      }
      for (; ji1 < n0; ji1 += P_L) {
        const int64_t i1 = ji1;
        const p_vi m = p_upto(n0 - i1);
        const p_vf t1 = p_load_part(&a0[n0*i0 + i1], m);
        const p_vf xacc0 = p_choosev(m, t1, P_B(-P_INF));
        vacc0[0] = p_morev(xacc0, vacc0[0]);
        vacc0n[0] |= xacc0 != xacc0;
      }
    }
    { const float y = p_largest_lane((p_morev((p_morev(vacc0[3], vacc0[2])), (p_morev(vacc0[1], vacc0[0]))))); acc0 = y > acc0 ? y : acc0; }
    acc0n |= p_any_lane(vacc0n[0] | vacc0n[1] | vacc0n[2] | vacc0n[3]);
    const float r0 = (acc0n ? NAN : acc0);
    double acc1 = 0;
    for (int64_t b = 0; b < n0; b += 512) {
      const int64_t be = p_min(b + 512, n0);
      p_vf vacc1[1];
      vacc1[0] = P_B(0.0f);
      {
        int64_t ji1 = b;
        for (; ji1 + 1 * P_L <= be; ji1 += 1 * P_L) {
          const int64_t i1 = ji1;
          const p_vf t2 = p_load(&a0[n0*i0 + i1]);
          const p_vf t3 = t2 - P_B(r0);
          const p_vf t4 = p_expv(t3);
          p_store((void*)&w0[i1], t4);
          const p_vf xacc1 = t4;
          vacc1[0] = vacc1[0] + xacc1;
        }
        for (; ji1 < be; ji1 += P_L) {
          const int64_t i1 = ji1;
          const p_vi m = p_upto(be - i1);
          const p_vf t5 = p_load_part(&a0[n0*i0 + i1], m);
          const p_vf t6 = t5 - P_B(r0);
          const p_vf t7 = p_expv(t6);
          p_store_part((void*)&w0[i1], t7, m);
          const p_vf xacc1 = p_choosev(m, t7, P_B(0.0f));
          vacc1[0] = vacc1[0] + xacc1;
        }
      }
      acc1 += p_sum_lanes_wide(vacc1[0]);
    }
    const float r1 = (float)acc1;
    const float t8 = 1.0f / r1;
    const float r2 = t8;
    {
      int64_t ji1 = 0;
      for (; ji1 + 1 * P_L <= n0; ji1 += 1 * P_L) {
        const int64_t i1 = ji1;
        const p_vf t9 = p_load(&w0[i1]);
        const p_vf t10 = t9 * P_B(r2);
        p_store_ahead(&a1[n0*i0 + i1]);
        p_store((void*)&a1[n0*i0 + i1], t10);
      }
      for (; ji1 < n0; ji1 += P_L) {
        const int64_t i1 = ji1;
        const p_vi m = p_upto(n0 - i1);
        const p_vf t11 = p_load_part(&w0[i1], m);
        const p_vf t12 = t11 * P_B(r2);
        p_store_part((void*)&a1[n0*i0 + i1], t12, m);
      }
    }
  }
  __builtin_free(w0);
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t n0 = n[0];
  const int64_t n1 = n[1];
  const int64_t n2 = n[2];
  const int64_t range = n1;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + n2), 64, p_error);
}
