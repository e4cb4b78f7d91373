static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  float* const a0 = p[0];
  const float* const a1 = p[1];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i1 = t % (14);
    const int64_t q1 = t / (14);
    const int64_t i0 = q1;
    {
      int64_t ji2 = 0;
      for (; ji2 < 1; ji2 += P_L) {
        const int64_t i2 = ji2;
        const p_vi m = p_upto(1 - i2);
        p_store_part((void*)&a0[14*i1 + i2 + 196*i0], P_B(0.0f), m);
      }
    }
    const int64_t t0 = (int64_t)(i1);
    _Bool t1 = t0 >= 1; P_OPAQUE(t1);
    _Bool t2 = t0 < 13; P_OPAQUE(t2);
    _Bool t3 = t1 & t2; P_OPAQUE(t3);
    {
      int64_t ji2 = 1;
#if P_L <= 8
      for (; ji2 + 1 * P_L <= 13; ji2 += 1 * P_L) {
        const int64_t i2 = ji2;
        p_vf t4;
        if (t3) {
          const p_vf t5 = p_load(&a1[12*i1 + i2 + 144*i0 - 13]);
          t4 = t5;
        } else {
          t4 = P_B(0.0f);
        }
        p_store((void*)&a0[14*i1 + i2 + 196*i0], t4);
      }
#endif
#if P_L >= 8
      for (; ji2 < 13; ji2 += P_L) {
        const int64_t i2 = ji2;
        const p_vi m = p_upto(13 - i2);
        p_vf t6;
        if (t3) {
          const p_vf t7 = p_load_part(&a1[12*i1 + i2 + 144*i0 - 13], m);
          t6 = t7;
        } else {
          t6 = P_B(0.0f);
        }
        p_store_part((void*)&a0[14*i1 + i2 + 196*i0], t6, m);
      }
#endif
    }
    {
      int64_t ji2 = 13;
      for (; ji2 < 14; ji2 += P_L) {
        const int64_t i2 = ji2;
        const p_vi m = p_upto(14 - i2);
        p_store_part((void*)&a0[14*i1 + i2 + 196*i0], P_B(0.0f), m);
      }
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 112;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 154), 64, p_error);
}

static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  const float* const a1 = p[1];
  float* const a2 = p[2];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i1 = t % (3);
    const int64_t q1 = t / (3);
    const int64_t i0 = q1;
    double acc0 = 0;
    double acc1 = 0;
    double acc2 = 0;
    p_vf vacc0[2];
    for (int u = 0; u < 2; u++) vacc0[u] = P_B(0.0f);
    p_vf vacc1[2];
    for (int u = 0; u < 2; u++) vacc1[u] = P_B(0.0f);
    p_vf vacc2[2];
    for (int u = 0; u < 2; u++) vacc2[u] = P_B(0.0f);
    for (int64_t i2 = 0; i2 < 2; i2++) {
      for (int64_t i3 = 0; i3 < 12; i3++) {
        {
          int64_t ji4 = 0;
#if P_L <= 4
          for (; ji4 + 2 * P_L <= 12; ji4 += 2 * P_L) {
            #pragma GCC unroll 2
            for (int u = 0; u < 2; u++) {
              const int64_t i4 = ji4 + u * P_L;
              const p_vf t0 = p_load(&a0[144*i0 + 576*i2 + 12*i3 + i4]);
              const p_vf t1 = p_load(&a1[196*i0 + 14*i1 + 784*i2 + 14*i3 + i4]);
              const p_vf t2 = t0 * t1;
              const p_vf xacc0 = t2;
              vacc0[u] = vacc0[u] + xacc0;
              const p_vf t3 = p_load(&a1[196*i0 + 14*i1 + 784*i2 + 14*i3 + i4 + 1]);
              const p_vf t4 = t0 * t3;
              const p_vf xacc1 = t4;
              vacc1[u] = vacc1[u] + xacc1;
              const p_vf t5 = p_load(&a1[196*i0 + 14*i1 + 784*i2 + 14*i3 + i4 + 2]);
              const p_vf t6 = t0 * t5;
              const p_vf xacc2 = t6;
              vacc2[u] = vacc2[u] + xacc2;
            }
          }
#endif
          for (; ji4 < 12; ji4 += P_L) {
            const int64_t i4 = ji4;
            const p_vi m = p_upto(12 - i4);
            const p_vf t7 = p_load_part(&a0[144*i0 + 576*i2 + 12*i3 + i4], m);
            const p_vf t8 = p_load_part(&a1[196*i0 + 14*i1 + 784*i2 + 14*i3 + i4], m);
            const p_vf t9 = t7 * t8;
            const p_vf xacc0 = p_choosev(m, t9, P_B(0.0f));
            vacc0[0] = vacc0[0] + xacc0;
            const p_vf t10 = p_load_part(&a1[196*i0 + 14*i1 + 784*i2 + 14*i3 + i4 + 1], m);
            const p_vf t11 = t7 * t10;
            const p_vf xacc1 = p_choosev(m, t11, P_B(0.0f));
            vacc1[0] = vacc1[0] + xacc1;
            const p_vf t12 = p_load_part(&a1[196*i0 + 14*i1 + 784*i2 + 14*i3 + i4 + 2], m);
            const p_vf t13 = t7 * t12;
            const p_vf xacc2 = p_choosev(m, t13, P_B(0.0f));
            vacc2[0] = vacc2[0] + xacc2;
          }
        }
      }
    }
    acc0 += p_sum_lanes_wide((vacc0[0] + vacc0[1]));
    acc1 += p_sum_lanes_wide((vacc1[0] + vacc1[1]));
    acc2 += p_sum_lanes_wide((vacc2[0] + vacc2[1]));
    const float r0 = (float)acc0;
    a2[9*i0 + 3*i1] = r0;
    const float r1 = (float)acc1;
    a2[9*i0 + 3*i1 + 1] = r1;
    const float r2 = (float)acc2;
    a2[9*i0 + 3*i1 + 2] = r2;
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 12;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 3744), 64, p_error);
}
