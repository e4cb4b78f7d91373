static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  const float* const a1 = p[1];
  float* const a2 = p[2];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i0 = t;
    {
      int64_t ji1 = 0;
      for (; ji1 + 1 * P_L <= 96; ji1 += 1 * P_L) {
        const int64_t i1 = ji1;
        const p_vf t0 = p_load(&a0[96*i0 + i1]);
        const p_vf t1 = p_load(&a1[i1]);
        const p_vf t2 = t0 * t1;
        const p_vf t3 = t2 + P_B(1.0f);
        p_store((void*)&a2[96*i0 + i1], t3);
      }
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 8;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 576), 64, p_error);
}
