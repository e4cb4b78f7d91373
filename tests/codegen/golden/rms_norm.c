static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  const float* const a1 = p[1];
  float* const a2 = p[2];
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
          const p_vf t1 = t0 * t0;
          const p_vf xacc0 = t1;
          vacc0[u] = vacc0[u] + xacc0;
        }
      }
    }
    acc0 += p_sum_lanes((vacc0[0] + vacc0[1]));
    const float r0 = acc0;
    const float t2 = r0 / 96.0f;
    const float t3 = t2 + 9.999999974752427e-07f;
    const float t4 = 1.0f / sqrtf(t3);
    const float r1 = t4;
    {
      int64_t ji1 = 0;
      for (; ji1 + 1 * P_L <= 96; ji1 += 1 * P_L) {
        const int64_t i1 = ji1;
        const p_vf t5 = p_load(&a0[96*i0 + i1]);
        const p_vf t6 = t5 * P_B(r1);
        const p_vf t7 = p_load(&a1[i1]);
        const p_vf t8 = t6 * t7;
        p_store((void*)&a2[96*i0 + i1], t8);
      }
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 8;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 2496), 64, p_error);
}
