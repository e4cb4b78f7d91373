static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  const float* const a1 = p[1];
  float* const a2 = p[2];
  {
    int64_t ji0 = begin;
    for (; ji0 + 1 * P_L <= end; ji0 += 1 * P_L) {
      const int64_t i0 = ji0;
      const p_vf t0 = p_load(&a0[i0]);
      const p_vf t1 = -t0;
      const p_vf t2 = p_expv(t1);
      const p_vf t3 = t2 + P_B(1.0f);
      const p_vf t4 = t0 / t3;
      const p_vf t5 = p_load(&a1[i0]);
      const p_vf t6 = t4 * t5;
      p_store((void*)&a2[i0], t6);
    }
    for (; ji0 < end; ji0 += P_L) {
      const int64_t i0 = ji0;
      const p_vi m = p_upto(end - i0);
      const p_vf t7 = p_load_part(&a0[i0], m);
      const p_vf t8 = -t7;
      const p_vf t9 = p_expv(t8);
      const p_vf t10 = t9 + P_B(1.0f);
      const p_vf t11 = t7 / t10;
      const p_vf t12 = p_load_part(&a1[i0], m);
      const p_vf t13 = t11 * t12;
      p_store_part((void*)&a2[i0], t13, m);
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 768;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 23), 64, p_error);
}
