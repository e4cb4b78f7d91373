static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const double* const a0 = p[0];
  double* const a1 = p[1];
  double* const a2 = p[2];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i0 = t;
    double acc0 = 0;
    double acc1 = (-INFINITY);
    int64_t acc1n = 0;
    double acc0_1 = 0;
    double acc0_2 = 0;
    double acc0_3 = 0;
    double acc1_1 = (-INFINITY);
    int64_t acc1_1n = 0;
    double acc1_2 = (-INFINITY);
    int64_t acc1_2n = 0;
    double acc1_3 = (-INFINITY);
    int64_t acc1_3n = 0;
    {
      const int64_t i1n = (512 - 0) / 4;
      #pragma omp simd reduction(+:acc0, acc0_1, acc0_2, acc0_3) reduction(max:acc1, acc1_1, acc1_2, acc1_3) reduction(|:acc1n, acc1_1n, acc1_2n, acc1_3n)
      for (int64_t i1k = 0; i1k < i1n; i1k++) {
        {
          const int64_t i1 = 0 + i1k + 0 * i1n;
          const double t0 = a0[512*i0 + i1];
          acc0 += t0;
          acc1 = t0 > acc1 ? t0 : acc1;
          acc1n |= -(int64_t)(t0 != t0);
        }
        {
          const int64_t i1 = 0 + i1k + 1 * i1n;
          const double t0 = a0[512*i0 + i1];
          acc0_1 += t0;
          acc1_1 = t0 > acc1_1 ? t0 : acc1_1;
          acc1_1n |= -(int64_t)(t0 != t0);
        }
        {
          const int64_t i1 = 0 + i1k + 2 * i1n;
          const double t0 = a0[512*i0 + i1];
          acc0_2 += t0;
          acc1_2 = t0 > acc1_2 ? t0 : acc1_2;
          acc1_2n |= -(int64_t)(t0 != t0);
        }
        {
          const int64_t i1 = 0 + i1k + 3 * i1n;
          const double t0 = a0[512*i0 + i1];
          acc0_3 += t0;
          acc1_3 = t0 > acc1_3 ? t0 : acc1_3;
          acc1_3n |= -(int64_t)(t0 != t0);
        }
      }
    }
    acc0 += acc0_1;
    acc0 += acc0_2;
    acc0 += acc0_3;
    acc1 = acc1_1 > acc1 ? acc1_1 : acc1;
    acc1n |= acc1_1n;
    acc1 = acc1_2 > acc1 ? acc1_2 : acc1;
    acc1n |= acc1_2n;
    acc1 = acc1_3 > acc1 ? acc1_3 : acc1;
    acc1n |= acc1_3n;
    const double r0 = acc0;
    a1[i0] = r0;
    const double r1 = (acc1n ? NAN : acc1);
    a2[i0] = r1;
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 64;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 2560), 64, p_error);
}
