static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  float* const a0 = p[0];
  {
    int64_t ji0 = begin;
    for (; ji0 + 1 * P_L <= end; ji0 += 1 * P_L) {
      for (int u = 0; u < 1; u++) {
        const int64_t i0 = ji0 + u * P_L;
        p_store((void*)&a0[i0], P_B(0.0f));
      }
    }
    for (; ji0 < end; ji0 += P_L) {
      const int64_t i0 = ji0;
      const p_vi m = p_upto(end - i0);
      p_store_part((void*)&a0[i0], P_B(0.0f), m);
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 4096;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 2), 64, p_error);
}

static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  int64_t* const a1 = p[1];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i1 = t % (4);
    const int64_t q1 = t / (4);
    const int64_t i0 = q1;
    const int32_t t18 = (int32_t)(2*i1);
    const int32_t t19 = t18 * 64;
    {
      int64_t ji2 = 0;
      for (; ji2 + 1 * P_L <= 32; ji2 += 1 * P_L) {
        for (int u = 0; u < 1; u++) {
          const int64_t i2 = ji2 + u * P_L;
          const p_vf t0 = p_load_2(&a0[128*i1 + 2*i2 + 512*i0 + 65]);
          const p_vf t1 = p_load_2(&a0[128*i1 + 2*i2 + 512*i0 + 64]);
          const p_vf t2 = p_load_2(&a0[128*i1 + 2*i2 + 512*i0 + 1]);
          const p_vf t3 = p_load_2(&a0[128*i1 + 2*i2 + 512*i0]);
          const p_vf t4 = P_NAN_MOREv(t2, t3);
          const p_vf t5 = P_NAN_MOREv(t1, t4);
          const p_vi t6 = t0 > t5;
          const p_vi t7 = t0 != t0;
          const p_vi t8 = t6 | t7;
          const p_vi t9 = P_BI((int32_t)(128*i1 + 2*i2 + 65)) + p_lanes() * 2;
          const p_vi t10 = t1 > t4;
          const p_vi t11 = t1 != t1;
          const p_vi t12 = t10 | t11;
          const p_vi t13 = P_BI((int32_t)(128*i1 + 2*i2 + 64)) + p_lanes() * 2;
          const p_vi t14 = t2 > t3;
          const p_vi t15 = t2 != t2;
          const p_vi t16 = t14 | t15;
          const p_vi t17 = P_BI((int32_t)(128*i1 + 2*i2 + 1)) + p_lanes() * 2;
          const p_vi t20 = P_BI((int32_t)(2*i2)) + p_lanes() * 2;
          const p_vi t21 = P_BI(t19) + t20;
          const p_vi t22 = p_choosei(t16, t17, t21);
          const p_vi t23 = p_choosei(t12, t13, t22);
          const p_vi t24 = p_choosei(t8, t9, t23);
          p_store64((void*)&a1[32*i1 + i2 + 128*i0], t24);
        }
      }
      for (; ji2 < 32; ji2 += P_L) {
        const int64_t i2 = ji2;
        const p_vi m = p_upto(32 - i2);
        const p_vf t25 = p_load_2_part(&a0[128*i1 + 2*i2 + 512*i0 + 65], m);
        const p_vf t26 = p_load_2_part(&a0[128*i1 + 2*i2 + 512*i0 + 64], m);
        const p_vf t27 = p_load_2_part(&a0[128*i1 + 2*i2 + 512*i0 + 1], m);
        const p_vf t28 = p_load_2_part(&a0[128*i1 + 2*i2 + 512*i0], m);
        const p_vf t29 = P_NAN_MOREv(t27, t28);
        const p_vf t30 = P_NAN_MOREv(t26, t29);
        const p_vi t31 = t25 > t30;
        const p_vi t32 = t25 != t25;
        const p_vi t33 = t31 | t32;
        const p_vi t34 = P_BI((int32_t)(128*i1 + 2*i2 + 65)) + p_lanes() * 2;
        const p_vi t35 = t26 > t29;
        const p_vi t36 = t26 != t26;
        const p_vi t37 = t35 | t36;
        const p_vi t38 = P_BI((int32_t)(128*i1 + 2*i2 + 64)) + p_lanes() * 2;
        const p_vi t39 = t27 > t28;
        const p_vi t40 = t27 != t27;
        const p_vi t41 = t39 | t40;
        const p_vi t42 = P_BI((int32_t)(128*i1 + 2*i2 + 1)) + p_lanes() * 2;
        const p_vi t43 = P_BI((int32_t)(2*i2)) + p_lanes() * 2;
        const p_vi t44 = P_BI(t19) + t43;
        const p_vi t45 = p_choosei(t41, t42, t44);
        const p_vi t46 = p_choosei(t37, t38, t45);
        const p_vi t47 = p_choosei(t33, t34, t46);
        p_store64_part((void*)&a1[32*i1 + i2 + 128*i0], t47, m);
      }
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 32;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 736), 64, p_error);
}
