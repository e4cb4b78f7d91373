static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const uint16_t* const a0 = p[0];
  uint16_t* const a1 = p[1];
  {
    int64_t ji0 = begin;
    for (; ji0 + 1 * P_L <= end; ji0 += 1 * P_L) {
      const int64_t i0 = ji0;
      const p_vh t0 = p_load16(&a0[i0]);
      const p_vf t1 = p_from_bf16v(t0);
      const p_vf t2 = t1 * P_B(0.5f);
      const p_vf t3 = t1 * P_B(0.7071067690849304f);
      const p_vf t4 = p_erfv(t3);
      const p_vf t5 = t4 + P_B(1.0f);
      const p_vf t6 = t2 * t5;
      const p_vh t7 = p_to_bf16v(t6);
      p_store16((void*)&a1[i0], t7);
    }
    for (; ji0 < end; ji0 += P_L) {
      const int64_t i0 = ji0;
      const p_vi m = p_upto(end - i0);
      const p_vh t8 = p_load16_part(&a0[i0], m);
      const p_vf t9 = p_from_bf16v(t8);
      const p_vf t10 = t9 * P_B(0.5f);
      const p_vf t11 = t9 * P_B(0.7071067690849304f);
      const p_vf t12 = p_erfv(t11);
      const p_vf t13 = t12 + P_B(1.0f);
      const p_vf t14 = t10 * t13;
      const p_vh t15 = p_to_bf16v(t14);
      p_store16_part((void*)&a1[i0], t15, m);
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 768;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 29), 64, p_error);
}
