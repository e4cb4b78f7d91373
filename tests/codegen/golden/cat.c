static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  const float* const a1 = p[1];
  float* const a2 = p[2];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i0 = t;
    {
      int64_t ji1 = 0;
      for (; ji1 + 1 * P_L <= 192; ji1 += 1 * P_L) {
        const int64_t i1 = ji1;
        const p_vi t0 = P_BI((int32_t)(i1)) + p_lanes();
        const p_vi t1 = t0 < P_BI(p_clamp(96));
        const p_vi t2 = t1;
        const p_vf t3 = p_load_part(&a0[96*i0 + i1], t2);
        const p_vi t4 = ~t1;
        const p_vf t5 = p_load_part(&a1[96*i0 + i1 - 96], t4);
        const p_vf t6 = t5 * P_B(2.0f);
        const p_vf t7 = p_choosev(t1, t3, t6);
        p_store((void*)&a2[192*i0 + i1], t7);
      }
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 8;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 1344), 64, p_error);
}
