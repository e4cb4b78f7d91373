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
    for (int64_t i1 = 0; i1 < 4; i1++) {
      {
        int64_t ji2 = 0;
#if P_L <= 8
        for (; ji2 + 4 * P_L <= 36; ji2 += 4 * P_L) {
          #pragma GCC unroll 4
          for (int u = 0; u < 4; u++) {
            const int64_t i2 = ji2 + u * P_L;
            const p_vf t0 = p_load(&a0[36*i0 + 288*i1 + i2]);
            const p_vf xacc0 = t0;
            vacc0[u] = vacc0[u] + xacc0;
          }
        }
#endif
        for (; ji2 < 36; ji2 += P_L) {
          const int64_t i2 = ji2;
          const p_vi m = p_upto(36 - i2);
          const p_vf t1 = p_load_part(&a0[36*i0 + 288*i1 + i2], m);
          const p_vf xacc0 = p_choosev(m, t1, P_B(0.0f));
          vacc0[0] = vacc0[0] + xacc0;
        }
      }
    }
    acc0 += p_sum_lanes(((vacc0[0] + vacc0[1]) + (vacc0[2] + vacc0[3])));
    const float r0 = acc0;
    const float t2 = r0 / 144.0f;
    const float r1 = t2;
    float acc1 = 0;
    p_vf vacc1[4];
    for (int u = 0; u < 4; u++) vacc1[u] = P_B(0.0f);
    for (int64_t i1 = 0; i1 < 4; i1++) {
      {
        int64_t ji2 = 0;
#if P_L <= 8
        for (; ji2 + 4 * P_L <= 36; ji2 += 4 * P_L) {
          #pragma GCC unroll 4
          for (int u = 0; u < 4; u++) {
            const int64_t i2 = ji2 + u * P_L;
            const p_vf t3 = p_load(&a0[36*i0 + 288*i1 + i2]);
            const p_vf t4 = t3 - P_B(r1);
            const p_vf t5 = t4 * t4;
            const p_vf xacc1 = t5;
            vacc1[u] = vacc1[u] + xacc1;
          }
        }
#endif
        for (; ji2 < 36; ji2 += P_L) {
          const int64_t i2 = ji2;
          const p_vi m = p_upto(36 - i2);
          const p_vf t6 = p_load_part(&a0[36*i0 + 288*i1 + i2], m);
          const p_vf t7 = t6 - P_B(r1);
          const p_vf t8 = t7 * t7;
          const p_vf xacc1 = p_choosev(m, t8, P_B(0.0f));
          vacc1[0] = vacc1[0] + xacc1;
        }
      }
    }
    acc1 += p_sum_lanes(((vacc1[0] + vacc1[1]) + (vacc1[2] + vacc1[3])));
    const float r2 = acc1;
    const float t9 = r2 / 144.0f;
    const float r3 = t9;
    const float t10 = r3 + 9.999999747378752e-06f;
    const float t11 = 1.0f / sqrtf(t10);
    const float r4 = t11;
    for (int64_t i1 = 0; i1 < 4; i1++) {
      const float t15 = a1[i0];
      const float t17 = a2[i0];
      {
        int64_t ji2 = 0;
        for (; ji2 + 1 * P_L <= 36; ji2 += 1 * P_L) {
          const int64_t i2 = ji2;
          const p_vf t12 = p_load(&a0[36*i0 + 288*i1 + i2]);
          const p_vf t13 = t12 - P_B(r1);
          const p_vf t14 = t13 * P_B(r4);
          const p_vf t16 = t14 * P_B(t15);
          const p_vf t18 = t16 + P_B(t17);
          p_store((void*)&a3[36*i0 + 288*i1 + i2], t18);
        }
#if P_L >= 8
        for (; ji2 < 36; ji2 += P_L) {
          const int64_t i2 = ji2;
          const p_vi m = p_upto(36 - i2);
          const p_vf t19 = p_load_part(&a0[36*i0 + 288*i1 + i2], m);
          const p_vf t20 = t19 - P_B(r1);
          const p_vf t21 = t20 * P_B(r4);
          const p_vf t22 = t21 * P_B(t15);
          const p_vf t23 = t22 + P_B(t17);
          p_store_part((void*)&a3[36*i0 + 288*i1 + i2], t23, m);
        }
#endif
      }
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 8;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 6048), 64, p_error);
}
