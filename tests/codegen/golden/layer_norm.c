static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  const float* const a1 = p[1];
  const float* const a2 = p[2];
  float* const a3 = p[3];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i0 = t;
    float acc0 = 0;
    p_vf vacc0[2];
    for (int u = 0; u < 2; u++) vacc0[u] = P_B(0.0f);
    {
      int64_t ji1 = 0;
      for (; ji1 + 2 * P_L <= 96; ji1 += 2 * P_L) {
        #pragma GCC unroll 2
        for (int u = 0; u < 2; u++) {
          const int64_t i1 = ji1 + u * P_L;
          const p_vf t0 = p_load(&a0[96*i0 + i1]);
          const p_vf xacc0 = t0;
          vacc0[u] = vacc0[u] + xacc0;
        }
      }
    }
    acc0 += p_sum_lanes((vacc0[0] + vacc0[1]));
    const float r0 = acc0;
    const float t1 = r0 / 96.0f;
    const float r1 = t1;
    float acc1 = 0;
    p_vf vacc1[2];
    for (int u = 0; u < 2; u++) vacc1[u] = P_B(0.0f);
    {
      int64_t ji1 = 0;
      for (; ji1 + 2 * P_L <= 96; ji1 += 2 * P_L) {
        #pragma GCC unroll 2
        for (int u = 0; u < 2; u++) {
          const int64_t i1 = ji1 + u * P_L;
          const p_vf t2 = p_load(&a0[96*i0 + i1]);
          const p_vf t3 = t2 - P_B(r1);
          const p_vf t4 = t3 * t3;
          const p_vf xacc1 = t4;
          vacc1[u] = vacc1[u] + xacc1;
        }
      }
    }
    acc1 += p_sum_lanes((vacc1[0] + vacc1[1]));
    const float r2 = acc1;
    const float t5 = r2 / 96.0f;
    const float t6 = t5 + 9.999999747378752e-06f;
    const float t7 = 1.0f / sqrtf(t6);
    const float r3 = t7;
    {
      int64_t ji1 = 0;
      for (; ji1 + 1 * P_L <= 96; ji1 += 1 * P_L) {
        const int64_t i1 = ji1;
        const p_vf t8 = p_load(&a0[96*i0 + i1]);
        const p_vf t9 = t8 - P_B(r1);
        const p_vf t10 = t9 * P_B(r3);
        const p_vf t11 = p_load(&a1[i1]);
        const p_vf t12 = t10 * t11;
        const p_vf t13 = p_load(&a2[i1]);
        const p_vf t14 = t12 + t13;
        p_store((void*)&a3[96*i0 + i1], t14);
      }
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 8;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 3840), 64, p_error);
}
