static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  const float* const a1 = p[1];
  const float* const a2 = p[2];
  float* const a3 = p[3];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i0 = t;
    float acc0 = 0;
    p_vf vacc0[4];
    for (int u = 0; u < 4; u++) vacc0[u] = P_B(0.0f);
    {
      int64_t ji1 = 0;
      for (; ji1 + 4 * P_L <= 96; ji1 += 4 * P_L) {
        #pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
          const int64_t i1 = ji1 + u * P_L;
          const p_vf t0 = p_load(&a0[96*i0 + i1]);
          const p_vf xacc0 = t0;
          vacc0[u] = vacc0[u] + xacc0;
        }
      }
#if P_L >= 16
      for (; ji1 < 96; ji1 += P_L) {
        const int64_t i1 = ji1;
        const p_vi m = p_upto(96 - i1);
        const p_vf t1 = p_load_part(&a0[96*i0 + i1], m);
        const p_vf xacc0 = p_choosev(m, t1, P_B(0.0f));
        vacc0[0] = vacc0[0] + xacc0;
      }
#endif
    }
    acc0 += p_sum_lanes(((vacc0[0] + vacc0[1]) + (vacc0[2] + vacc0[3])));
    const float r0 = acc0;
    const float t2 = r0 / 96.0f;
    const float r1 = t2;
    float acc1 = 0;
    p_vf vacc1[4];
    for (int u = 0; u < 4; u++) vacc1[u] = P_B(0.0f);
    {
      int64_t ji1 = 0;
      for (; ji1 + 4 * P_L <= 96; ji1 += 4 * P_L) {
        #pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
          const int64_t i1 = ji1 + u * P_L;
          const p_vf t3 = p_load(&a0[96*i0 + i1]);
          const p_vf t4 = t3 - P_B(r1);
          const p_vf t5 = t4 * t4;
          const p_vf xacc1 = t5;
          vacc1[u] = vacc1[u] + xacc1;
        }
      }
#if P_L >= 16
      for (; ji1 < 96; ji1 += P_L) {
        const int64_t i1 = ji1;
        const p_vi m = p_upto(96 - i1);
        const p_vf t6 = p_load_part(&a0[96*i0 + i1], m);
        const p_vf t7 = t6 - P_B(r1);
        const p_vf t8 = t7 * t7;
        const p_vf xacc1 = p_choosev(m, t8, P_B(0.0f));
        vacc1[0] = vacc1[0] + xacc1;
      }
#endif
    }
    acc1 += p_sum_lanes(((vacc1[0] + vacc1[1]) + (vacc1[2] + vacc1[3])));
    const float r2 = acc1;
    const float t9 = r2 / 96.0f;
    const float t10 = t9 + 9.999999747378752e-06f;
    const float t11 = 1.0f / sqrtf(t10);
    const float r3 = t11;
    {
      int64_t ji1 = 0;
      for (; ji1 + 1 * P_L <= 96; ji1 += 1 * P_L) {
        const int64_t i1 = ji1;
        const p_vf t12 = p_load(&a0[96*i0 + i1]);
        const p_vf t13 = t12 - P_B(r1);
        const p_vf t14 = t13 * P_B(r3);
        const p_vf t15 = p_load(&a1[i1]);
        const p_vf t16 = t14 * t15;
        const p_vf t17 = p_load(&a2[i1]);
        const p_vf t18 = t16 + t17;
        p_store((void*)&a3[96*i0 + i1], t18);
      }
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 8;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 3840), 64, p_error);
}
