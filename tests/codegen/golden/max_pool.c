static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  float* const a1 = p[1];
  int64_t* const a2 = p[2];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i1 = t % (4);
    const int64_t q1 = t / (4);
    const int64_t i0 = q1;
    const int32_t t19 = (int32_t)(2*i1);
    const int32_t t20 = t19 * 64;
    {
      int64_t ji2 = 0;
      for (; ji2 + 1 * P_L <= 32; ji2 += 1 * P_L) {
        const int64_t i2 = ji2;
        const p_vf t0 = p_load_2(&a0[128*i1 + 2*i2 + 512*i0 + 65]);
        const p_vf t1 = p_load_2(&a0[128*i1 + 2*i2 + 512*i0 + 64]);
        const p_vf t2 = p_load_2(&a0[128*i1 + 2*i2 + 512*i0 + 1]);
        const p_vf t3 = p_load_2(&a0[128*i1 + 2*i2 + 512*i0]);
        const p_vf t4 = P_NAN_MOREv(t2, t3);
        const p_vf t5 = P_NAN_MOREv(t1, t4);
        const p_vf t6 = P_NAN_MOREv(t0, t5);
        p_store((void*)&a1[32*i1 + i2 + 128*i0], t6);
        const p_vi t7 = t0 > t5;
        const p_vi t8 = t0 != t0;
        const p_vi t9 = t7 | t8;
        const p_vi t10 = P_BI((int32_t)(128*i1 + 2*i2 + 65)) + p_lanes() * 2;
        const p_vi t11 = t1 > t4;
        const p_vi t12 = t1 != t1;
        const p_vi t13 = t11 | t12;
        const p_vi t14 = P_BI((int32_t)(128*i1 + 2*i2 + 64)) + p_lanes() * 2;
        const p_vi t15 = t2 > t3;
        const p_vi t16 = t2 != t2;
        const p_vi t17 = t15 | t16;
        const p_vi t18 = P_BI((int32_t)(128*i1 + 2*i2 + 1)) + p_lanes() * 2;
        const p_vi t21 = P_BI((int32_t)(2*i2)) + p_lanes() * 2;
        const p_vi t22 = P_BI(t20) + t21;
        const p_vi t23 = p_choosei(t17, t18, t22);
        const p_vi t24 = p_choosei(t13, t14, t23);
        const p_vi t25 = p_choosei(t9, t10, t24);
        p_store64((void*)&a2[32*i1 + i2 + 128*i0], t25);
      }
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 32;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 992), 64, p_error);
}
