static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  const float* const a1 = p[1];
  float* const a2 = p[2];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i1b = (t % ((128 + 127) / 128)) * 128;
    const int64_t i1e = i1b + 128;
    const int64_t q1 = t / ((128 + 127) / 128);
    const int64_t i0b = (q1) * 128;
    const int64_t i0e = p_min(i0b + 128, 96);
    float s0[16384];
    { const int64_t i1 = i1b, i0 = i0b;
      p_transpose32((void*)s0, 128, (const void*)&a0[96*i1 + i0], 96, i1e - i1b, i0e - i0b); }
    for (int64_t i0 = i0b; i0 < i0e; i0++) {
      {
        int64_t ji1 = i1b;
        for (; ji1 + 1 * P_L <= i1e; ji1 += 1 * P_L) {
          const int64_t i1 = ji1;
          const p_vf t0 = p_load(&a1[i1 + 128*i0]);
          const p_vf t1 = p_load(&s0[(i0 - i0b) * 128 + i1 - i1b]);
          const p_vf t2 = t0 + t1;
          p_store((void*)&a2[i1 + 128*i0], t2);
        }
      }
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 1;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 61440), 64, p_error);
}
