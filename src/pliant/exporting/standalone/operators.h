/* Operators on elements of type T, with the arguments of their schemas behind the results. They return a code.

   A product is computed in blocks: DEPTH x COLUMNS of the right factor are packed in panels as wide as two vectors, BLOCK x
   DEPTH of the left one in panels of ROWS, and `tile` multiplies two panels in registers. A convolution is a product of
   its weights with a matrix that is never made: `pack_image` packs parts of it from the image. */
#define WIDTH (2 * VECTOR / (int)sizeof(T))
typedef T NAME(vector) __attribute__((vector_size(VECTOR), aligned(sizeof(T))));

/* The image as a matrix: row (channel, kh, kw), column (oh, ow). */
typedef struct {
  const T *x;
  int64_t channel, h, w, sh, sw; /* strides of a channel, sizes, strides of a row and a column */
  int64_t kh, kw, oh, ow, step_h, step_w, pad_h, pad_w, gap_h, gap_w;
} NAME(image);

typedef struct {
  int64_t rows, columns, depth, batch, groups; /* `batch` products; the k-th image has `groups` of them */
  const T *a, *b;
  T *c;
  int64_t a_batch, a_group, a_row, a_column, b_batch, b_group, b_row, b_column, c_batch, c_group, c_row;
  T alpha;
  const NAME(image) *image; /* instead of b */
} NAME(product);

static inline __attribute__((always_inline)) void NAME(tile)(int64_t depth, const T *restrict a, const T *restrict b, T *restrict c) {
  NAME(vector) sum[ROWS][2] = {0};
  for (int64_t k = 0; k < depth; k++, a += ROWS, b += WIDTH) {
    const NAME(vector) left = *(const NAME(vector) *)b, right = *(const NAME(vector) *)(b + WIDTH / 2);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++) {
      sum[i][0] += a[i] * left;
      sum[i][1] += a[i] * right;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; i++) {
    *(NAME(vector) *)(c + i * WIDTH) = sum[i][0];
    *(NAME(vector) *)(c + i * WIDTH + WIDTH / 2) = sum[i][1];
  }
}

static void NAME(pack_rows)(const NAME(product) * p, const T *a, int64_t rows, int64_t depth, T *to) {
  for (int64_t i = 0; i < rows; i += ROWS, to += ROWS * depth)
    for (int64_t j = 0; j < ROWS; j++) {
      const T *from = a + (i + j) * p->a_row;
      if (i + j < rows)
        for (int64_t k = 0; k < depth; k++) to[k * ROWS + j] = p->alpha * from[k * p->a_column];
      else
        for (int64_t k = 0; k < depth; k++) to[k * ROWS + j] = 0;
    }
}

static void NAME(pack_columns)(const NAME(product) * p, const T *b, int64_t columns, int64_t depth, T *to) {
  for (int64_t j = 0; j < columns; j += WIDTH)
    for (int64_t k = 0; k < depth; k++, to += WIDTH) {
      const T *from = b + k * p->b_row + j * p->b_column;
      const int64_t many = p_min(WIDTH, columns - j);
      if (p->b_column == 1 && many == WIDTH)
        memcpy(to, from, WIDTH * sizeof(T));
      else
        for (int64_t i = 0; i < WIDTH; i++) to[i] = i < many ? from[i * p->b_column] : 0;
    }
}

static void NAME(pack_image)(const NAME(image) * m, const T *x, int64_t first, int64_t columns, int64_t k0, int64_t depth, T *to) {
  for (int64_t j = 0; j < columns; j += WIDTH) {
    const int64_t many = p_min(WIDTH, columns - j);
    int64_t h0[WIDTH], w0[WIDTH];
    for (int64_t i = 0; i < many; i++) {
      h0[i] = (first + j + i) / m->ow * m->step_h - m->pad_h;
      w0[i] = (first + j + i) % m->ow * m->step_w - m->pad_w;
    }
    for (int64_t k = k0; k < k0 + depth; k++, to += WIDTH) {
      const int64_t kw = k % m->kw * m->gap_w, kh = k / m->kw % m->kh * m->gap_h;
      const T *channel = x + k / m->kw / m->kh * m->channel;
      for (int64_t i = 0; i < WIDTH; i++) {
        const int64_t h = i < many ? h0[i] + kh : -1, w = i < many ? w0[i] + kw : -1;
        const bool inside = (uint64_t)h < (uint64_t)m->h && (uint64_t)w < (uint64_t)m->w;
        to[i] = inside ? channel[h * m->sh + w * m->sw] : 0;
      }
    }
  }
}

/* C += alpha A B for all rows of one block of columns. */
static void NAME(block)(const NAME(product) * p, int64_t at, int64_t first, T *left, T *right) {
  const int64_t batch = at / p->groups, group = at % p->groups, columns = p_min(COLUMNS, p->columns - first);
  const T *a = p->a + batch * p->a_batch + group * p->a_group, *b = p->b + batch * p->b_batch + group * p->b_group;
  T *c = p->c + batch * p->c_batch + group * p->c_group + first;
  T part[ROWS * WIDTH] __attribute__((aligned(64)));
  for (int64_t k = 0; k < p->depth; k += DEPTH) {
    const int64_t depth = p_min(DEPTH, p->depth - k);
    if (p->image)
      NAME(pack_image)(p->image, b, first, columns, k, depth, right);
    else
      NAME(pack_columns)(p, b + k * p->b_row + first * p->b_column, columns, depth, right);
    for (int64_t i = 0; i < p->rows; i += BLOCK) {
      const int64_t rows = p_min(BLOCK, p->rows - i);
      NAME(pack_rows)(p, a + i * p->a_row + k * p->a_column, rows, depth, left);
      for (int64_t j = 0; j < columns; j += WIDTH)
        for (int64_t r = 0; r < rows; r += ROWS) {
          NAME(tile)(depth, left + r * depth, right + j * depth, part);
          const int64_t high = p_min(ROWS, rows - r), wide = p_min(WIDTH, columns - j);
          for (int64_t y = 0; y < high; y++) {
            T *to = c + (i + r + y) * p->c_row + j;
            for (int64_t z = 0; z < wide; z++) to[z] += part[y * WIDTH + z];
          }
        }
    }
  }
}

static void NAME(blocks)(void **given, const int64_t *n, int64_t begin, int64_t end, int64_t slot, int32_t *error) {
  const NAME(product) *p = given[0];
  const int64_t each = (p->columns + COLUMNS - 1) / COLUMNS;
  T *left = p_new((BLOCK + COLUMNS + WIDTH) * DEPTH * sizeof(T)), *right = left + BLOCK * DEPTH;
  (void)n, (void)slot;
  if (!left) {
    *error = PLIANT_MEMORY;
    return;
  }
  for (int64_t k = begin; k < end; k++) NAME(block)(p, k / each, k % each * COLUMNS, left, right);
  p_delete(left);
}

static int NAME(multiply)(const NAME(product) * p) {
  const int64_t each = (p->columns + COLUMNS - 1) / COLUMNS;
  int32_t error = 0;
  void *given[] = {(void *)p};
  const int64_t work = p->rows * p->depth * p_min(COLUMNS, p->columns);
  if (p->batch * p->groups * each > 0 && p->rows * p->depth > 0)
    p_run(NAME(blocks), given, NULL, p->batch * p->groups * each, 1 + 100000 / (1 + work), 64, &error);
  return error ? p_fail(error, "no memory for a product") : PLIANT_OK;
}

/* ---- tensors that the loops above want row-major */
static int64_t NAME(elements)(const p_view *v) {
  int64_t found = 1;
  for (int d = 0; d < v->ndim; d++) found *= v->size[d];
  return found;
}

static bool NAME(is_plain)(const p_view *v) {
  int64_t step = 1;
  for (int d = v->ndim - 1; d >= 0; d--) {
    if (v->size[d] != 1 && v->stride[d] != step) return false;
    step *= v->size[d];
  }
  return true;
}

/* The view, or a row-major copy in `*room`, which is the caller's to delete. */
static int NAME(plain)(const p_view *v, p_view *made, bool filled, void **room) {
  int64_t step = 1;
  *made = *v;
  for (int d = v->ndim - 1; d >= 0; d--) {
    made->stride[d] = step;
    step *= v->size[d];
  }
  if (NAME(is_plain)(v)) return PLIANT_OK;
  *room = made->data = p_new(step * sizeof(T));
  if (!*room) return PLIANT_MEMORY;
  if (filled) p_copy(made->data, made->stride, v->data, v->stride, v->size, v->ndim, sizeof(T));
  return PLIANT_OK;
}

static void NAME(put_back)(const p_view *out, const p_view *made, void *room) {
  if (room) p_copy(out->data, out->stride, made->data, made->stride, out->size, out->ndim, sizeof(T));
  p_delete(room);
}

/* ---- products */
/* out = beta bias + alpha a b, of matrices or batches of them; a bias has the sizes of the result or 1. */
static int NAME(products)(const p_view *out, const p_view *bias, const p_view *a, const p_view *b, double beta, double alpha) {
  const int d = out->ndim - 2;
  p_view made;
  void *room = NULL;
  P_TRY(NAME(plain)(out, &made, false, &room));
  T *c = (T *)made.data;
  if (!bias || beta == 0)
    memset(c, 0, NAME(elements)(out) * sizeof(T));
  else {
    int64_t step[5] = {0};
    const int more = out->ndim - bias->ndim;
    for (int k = more; k < out->ndim; k++) step[k] = bias->size[k - more] == 1 ? 0 : bias->stride[k - more];
    if (!(bias->data == made.data)) p_copy(made.data, made.stride, bias->data, step, out->size, out->ndim, sizeof(T));
    if (beta != 1)
      for (int64_t k = 0; k < NAME(elements)(out); k++) c[k] *= (T)beta;
  }
  const NAME(product) p = {
      .rows = out->size[d], .columns = out->size[d + 1], .depth = a->size[d + 1], .batch = d ? out->size[0] : 1, .groups = 1,
      .a = (const T *)a->data, .b = (const T *)b->data, .c = c, .a_batch = d ? a->stride[0] : 0, .a_row = a->stride[d],
      .a_column = a->stride[d + 1], .b_batch = d ? b->stride[0] : 0, .b_row = b->stride[d], .b_column = b->stride[d + 1],
      .c_batch = d ? made.stride[0] : 0, .c_row = made.stride[d], .alpha = (T)alpha};
  const int code = NAME(multiply)(&p);
  NAME(put_back)(out, &made, room);
  return code;
}

int NAME(p_mm)(const p_view *out, const p_view *a, const p_view *b) { return NAME(products)(out, NULL, a, b, 0, 1); }
int NAME(p_addmm)(const p_view *out, const p_view *bias, const p_view *a, const p_view *b, double beta, double alpha) {
  return NAME(products)(out, bias, a, b, beta, alpha);
}

/* ---- convolutions */
typedef struct {
  const p_view *x, *w;
  const T *bias;
  int64_t bias_step, groups, stride[2], pad[2], gap[2];
  T *out;
  const int64_t *size; /* of the result */
} NAME(window);

/* One channel of the image for each channel of the result: planes of results, a row at a time. */
static void NAME(planes)(void **given, const int64_t *n, int64_t begin, int64_t end, int64_t slot, int32_t *error) {
  const NAME(window) *v = given[0];
  const int64_t channels = v->size[1], oh = v->size[2], ow = v->size[3], h = v->x->size[2], w = v->x->size[3];
  const int64_t each = channels / v->groups;
  (void)n, (void)slot, (void)error;
  for (int64_t k = begin; k < end; k++) {
    const int64_t channel = k % channels;
    const T *x = (const T *)v->x->data + (k / channels * v->groups + channel / each) * h * w;
    const T *factors = (const T *)v->w->data + channel * v->w->size[2] * v->w->size[3];
    T *out = v->out + k * oh * ow;
    for (int64_t kh = 0; kh < v->w->size[2]; kh++)
      for (int64_t kw = 0; kw < v->w->size[3]; kw++) {
        const T factor = *factors++;
        const int64_t from = kw * v->gap[1] - v->pad[1], step = v->stride[1];
        const int64_t first = from < 0 ? (-from + step - 1) / step : 0;
        const int64_t last = w - from <= 0 ? 0 : p_min(ow, (w - from + step - 1) / step);
        for (int64_t y = 0; y < oh; y++) {
          const int64_t row = y * v->stride[0] + kh * v->gap[0] - v->pad[0];
          if ((uint64_t)row >= (uint64_t)h) continue;
          const T *source = x + row * w;
          T *to = out + y * ow;
          if (step == 1)
            for (int64_t i = first; i < last; i++) to[i] += factor * source[i + from];
          else
            for (int64_t i = first; i < last; i++) to[i] += factor * source[i * step + from];
        }
      }
  }
}

static int NAME(convolve)(const NAME(window) * v) {
  const int64_t pixels = v->size[2] * v->size[3], channels = v->size[1] / v->groups, inside = v->w->size[1];
  const int64_t kernel = v->w->size[2] * v->w->size[3], plane = v->x->size[2] * v->x->size[3];
  for (int64_t k = 0; k < v->size[0] * v->size[1]; k++)
    for (int64_t j = 0; j < pixels; j++) v->out[k * pixels + j] = v->bias ? v->bias[k % v->size[1] * v->bias_step] : 0;
  if (inside == 1 && v->groups > 1) {
    void *given[] = {(void *)v};
    int32_t error = 0;
    p_run(NAME(planes), given, NULL, v->size[0] * v->size[1], 1 + 50000 / (1 + pixels * kernel), 64, &error);
    return PLIANT_OK;
  }
  const NAME(image) image = {
      .x = NULL, .channel = plane, .h = v->x->size[2], .w = v->x->size[3], .sh = v->x->size[3], .sw = 1, .kh = v->w->size[2],
      .kw = v->w->size[3], .oh = v->size[2], .ow = v->size[3], .step_h = v->stride[0], .step_w = v->stride[1],
      .pad_h = v->pad[0], .pad_w = v->pad[1], .gap_h = v->gap[0], .gap_w = v->gap[1]};
  const bool by_point = kernel == 1 && v->stride[0] == 1 && v->stride[1] == 1 && !v->pad[0] && !v->pad[1];
  const NAME(product) p = {
      .rows = channels, .columns = pixels, .depth = inside * kernel, .batch = v->size[0], .groups = v->groups,
      .a = (const T *)v->w->data, .b = (const T *)v->x->data, .c = v->out, .a_group = channels * inside * kernel,
      .a_row = inside * kernel, .a_column = 1, .b_batch = v->groups * inside * plane, .b_group = inside * plane, .b_row = plane,
      .b_column = 1, .c_batch = v->size[1] * pixels, .c_group = channels * pixels, .c_row = pixels, .alpha = 1,
      .image = by_point ? NULL : &image};
  return NAME(multiply)(&p);
}

/* An image with rows alone is one with one row. */
static p_view NAME(with_rows)(p_view v) {
  if (v.ndim == 3) {
    v.ndim = 4;
    v.size[3] = v.size[2], v.stride[3] = v.stride[2];
    v.size[2] = 1, v.stride[2] = v.size[3];
  }
  return v;
}

static void NAME(pair)(int64_t *to, const int64_t *given, int ndim, int64_t rows) {
  to[0] = ndim == 4 ? given[0] : rows;
  to[1] = ndim == 4 ? given[1] : given[0];
}

int NAME(p_convolution)(
    const p_view *out, const p_view *x, const p_view *w, const p_view *bias, const int64_t *stride, const int64_t *padding,
    const int64_t *dilation, int64_t transposed, const int64_t *output_padding, int64_t groups) {
  (void)transposed, (void)output_padding;
  p_view image, weight, made;
  void *rooms[3] = {NULL, NULL, NULL};
  int code = NAME(plain)(x, &image, true, &rooms[0]);
  code = code ? code : NAME(plain)(w, &weight, true, &rooms[1]);
  code = code ? code : NAME(plain)(out, &made, false, &rooms[2]);
  if (!code) {
    const p_view images = NAME(with_rows)(image), weights = NAME(with_rows)(weight), results = NAME(with_rows)(made);
    NAME(window) v = {&images, &weights, bias ? (const T *)bias->data : NULL, bias ? bias->stride[0] : 0, groups,
                      {0}, {0}, {0}, (T *)made.data, results.size};
    NAME(pair)(v.stride, stride, x->ndim, 1);
    NAME(pair)(v.pad, padding, x->ndim, 0);
    NAME(pair)(v.gap, dilation, x->ndim, 1);
    code = NAME(convolve)(&v);
    NAME(put_back)(out, &made, rooms[2]);
  } else
    p_delete(rooms[2]);
  p_delete(rooms[0]);
  p_delete(rooms[1]);
  return code;
}

/* ---- pools: the last two dimensions, on any strides */
typedef struct {
  const p_view *x, *out, *where;
  int64_t kernel[2], stride[2], pad[2], gap[2], divisor;
  bool counted, mean;
} NAME(pool);

static void NAME(pools)(void **given, const int64_t *n, int64_t begin, int64_t end, int64_t slot, int32_t *error) {
  const NAME(pool) *v = given[0];
  const p_view *x = v->x, *shape = v->out ? v->out : v->where;
  const int d = x->ndim - 2;
  const int64_t h = x->size[d], w = x->size[d + 1], channels = x->size[d - 1];
  (void)n, (void)slot, (void)error;
  for (int64_t k = begin; k < end; k++) {
    const int64_t row = k % shape->size[d], channel = k / shape->size[d] % channels, image = k / shape->size[d] / channels;
    const T *from = (const T *)x->data + channel * x->stride[d - 1] + (d > 1 ? image * x->stride[0] : 0);
    for (int64_t column = 0; column < shape->size[d + 1]; column++) {
      const int64_t h0 = row * v->stride[0] - v->pad[0], w0 = column * v->stride[1] - v->pad[1];
      T most = (T)-INFINITY, sum = 0;
      int64_t place = -1, count = 0;
      for (int64_t kh = 0; kh < v->kernel[0]; kh++)
        for (int64_t kw = 0; kw < v->kernel[1]; kw++) {
          const int64_t y = h0 + kh * v->gap[0], z = w0 + kw * v->gap[1];
          if ((uint64_t)y >= (uint64_t)h || (uint64_t)z >= (uint64_t)w) continue;
          const T one = from[y * x->stride[d] + z * x->stride[d + 1]];
          sum += one;
          count++;
          if (place < 0 || one > most || one != one) most = one, place = y * w + z;
        }
      if (v->counted)
        count = (p_min(h0 + v->kernel[0], h + v->pad[0]) - h0) * (p_min(w0 + v->kernel[1], w + v->pad[1]) - w0);
      const T found = v->mean ? sum / (T)(v->divisor ? v->divisor : count) : most;
#define AT(t) (channel * (t)->stride[d - 1] + row * (t)->stride[d] + column * (t)->stride[d + 1] + (d > 1 ? image * (t)->stride[0] : 0))
      if (v->out) ((T *)v->out->data)[AT(v->out)] = found;
      if (v->where) ((int64_t *)v->where->data)[AT(v->where)] = place;
#undef AT
    }
  }
}

static int NAME(pooled)(NAME(pool) * v, const int64_t *kernel, const int64_t *stride, const int64_t *padding, const int64_t *dilation) {
  const p_view *shape = v->out ? v->out : v->where;
  for (int d = 0; d < 2; d++) {
    v->kernel[d] = kernel[d];
    v->stride[d] = stride ? stride[d] : kernel[d];
    v->pad[d] = padding[d];
    v->gap[d] = dilation ? dilation[d] : 1;
  }
  int64_t rows = 1;
  for (int d = 0; d < shape->ndim - 1; d++) rows *= shape->size[d];
  const int64_t work = shape->size[shape->ndim - 1] * kernel[0] * kernel[1];
  void *given[] = {v};
  int32_t error = 0;
  p_run(NAME(pools), given, NULL, rows, 1 + 50000 / (1 + work), 64, &error);
  return PLIANT_OK;
}

int NAME(p_max_pool)(
    const p_view *out, const p_view *where, const p_view *x, const int64_t *kernel, const int64_t *stride,
    const int64_t *padding, const int64_t *dilation, int64_t ceil_mode) {
  NAME(pool) v = {.x = x, .out = out, .where = where};
  (void)ceil_mode; /* the result's sizes say it */
  return NAME(pooled)(&v, kernel, stride, padding, dilation);
}

int NAME(p_avg_pool)(
    const p_view *out, const p_view *x, const int64_t *kernel, const int64_t *stride, const int64_t *padding,
    int64_t ceil_mode, int64_t count_include_pad, int64_t divisor) {
  NAME(pool) v = {.x = x, .out = out, .counted = count_include_pad, .divisor = divisor, .mean = true};
  (void)ceil_mode;
  return NAME(pooled)(&v, kernel, stride, padding, NULL);
}
#undef WIDTH
