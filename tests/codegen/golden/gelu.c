static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  float* const a1 = p[1];
  {
    int64_t ji0 = begin;
    for (; ji0 + 1 * P_L <= end; ji0 += 1 * P_L) {
      const int64_t i0 = ji0;
      const p_vf t0 = p_load(&a0[i0]);
      const p_vf t1 = p_normal_cdfv(t0);
      const p_vf t2 = t0 * t1;
      p_store((void*)&a1[i0], t2);
    }
    for (; ji0 < end; ji0 += P_L) {
      const int64_t i0 = ji0;
      const p_vi m = p_upto(end - i0);
      const p_vf t3 = p_load_part(&a0[i0], m);
      const p_vf t4 = p_normal_cdfv(t3);
      const p_vf t5 = t3 * t4;
      p_store_part((void*)&a1[i0], t5, m);
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 768;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 18), 64, p_error);
}
