static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const uint16_t* const a0 = p[0];
  uint16_t* const a1 = p[1];
  {
    int64_t ji0 = begin;
    for (; ji0 + 1 * P_L <= end; ji0 += 1 * P_L) {
      const int64_t i0 = ji0;
      const p_vh t0 = p_load16(&a0[i0]);
      const p_vf t1 = p_from_bf16v(t0);
      const p_vf t2 = p_normal_cdfv(t1);
      const p_vf t3 = t1 * t2;
      const p_vh t4 = p_to_bf16v(t3);
      p_store16((void*)&a1[i0], t4);
    }
    for (; ji0 < end; ji0 += P_L) {
      const int64_t i0 = ji0;
      const p_vi m = p_upto(end - i0);
      const p_vh t5 = p_load16_part(&a0[i0], m);
      const p_vf t6 = p_from_bf16v(t5);
      const p_vf t7 = p_normal_cdfv(t6);
      const p_vf t8 = t6 * t7;
      const p_vh t9 = p_to_bf16v(t8);
      p_store16_part((void*)&a1[i0], t9, m);
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 768;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 20), 64, p_error);
}
