static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  double* const a1 = p[1];
  #pragma omp simd
  for (int64_t i0 = begin; i0 < end; i0++) {
    const float t0 = a0[i0];
    const int8_t t1 = (int8_t)(int32_t)t0;
    const double t2 = (double)t1;
    a1[i0] = t2;
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 768;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 5), 64, p_error);
}
