static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const int64_t* const a0 = p[0];
  const float* const a1 = p[1];
  float* const a2 = p[2];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i1 = t % (8);
    const int64_t q1 = t / (8);
    const int64_t i0 = q1;
    {
      int64_t ji2 = 0;
      for (; ji2 + 1 * P_L <= 64; ji2 += 1 * P_L) {
        for (int u = 0; u < 1; u++) {
          const int64_t i2 = ji2 + u * P_L;
          const p_vi t0 = p_load64_pairs(&a0[128*i0 + 32*(i1 / 2) + i2 / 2], &a0[128*i0 + (i2 + 1) / 2 + 32*(i1 / 2)]);
          const p_vi t1 = P_BI((int32_t)(64*i1 + i2)) + p_lanes();
          const p_vi t2 = t0 == t1;
          const p_vf t3 = p_load_pairs(&a1[128*i0 + 32*(i1 / 2) + i2 / 2], &a1[128*i0 + (i2 + 1) / 2 + 32*(i1 / 2)]);
          const p_vf t4 = p_choosev(t2, t3, P_B(0.0f));
          const p_vf t5 = t4 + P_B(0.0f);
          p_store((void*)&a2[64*i1 + i2 + 512*i0], t5);
        }
      }
      for (; ji2 < 64; ji2 += P_L) {
        const int64_t i2 = ji2;
        const p_vi m = p_upto(64 - i2);
        const p_vi t6 = p_load64_pairs_part(&a0[128*i0 + 32*(i1 / 2) + i2 / 2], &a0[128*i0 + (i2 + 1) / 2 + 32*(i1 / 2)], m);
        const p_vi t7 = P_BI((int32_t)(64*i1 + i2)) + p_lanes();
        const p_vi t8 = t6 == t7;
        const p_vf t9 = p_load_pairs_part(&a1[128*i0 + 32*(i1 / 2) + i2 / 2], &a1[128*i0 + (i2 + 1) / 2 + 32*(i1 / 2)], m);
        const p_vf t10 = p_choosev(t8, t9, P_B(0.0f));
        const p_vf t11 = t10 + P_B(0.0f);
        p_store_part((void*)&a2[64*i1 + i2 + 512*i0], t11, m);
      }
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 64;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 448), 64, p_error);
}
