static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const int64_t* const a0 = p[0];
  const float* const a1 = p[1];
  float* const a2 = p[2];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i0 = t;
    const int64_t t0 = a0[i0];
    _Bool t1 = t0 < 0; P_OPAQUE(t1);
    const int64_t t2 = t1 ? 50 : t0;
    const int64_t t3 = p_check_index(t2, 50);
    {
      int64_t ji1 = 0;
      for (; ji1 + 1 * P_L <= 32; ji1 += 1 * P_L) {
        const int64_t i1 = ji1;
        const p_vf t4 = p_load(&a1[32*t3 + i1]);
        p_store((void*)&a2[32*i0 + i1], t4);
      }
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 7;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 256), 64, p_error);
}
