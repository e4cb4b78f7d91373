/* Recurrent layers on elements of type T, as PyTorch computes them: all steps' products with the inputs at once, then a
   product with the state and the gates for each step. */

/* One layer in one direction. `x`, `out`: [steps][rows][width]; `state`: what is returned, `cell`: of an LSTM, both row-major;
   `gates`, `more`: room for the gates of all steps, of one step. `w`: the weights of the inputs, of the state, their biases
   if there are any, of the projection. */
typedef struct {
  p_view x, out;
  const p_view *const *w;
  int64_t steps, rows, outer, inner, width; /* of the state, of the cell, of all gates */
  int kind, biases, back;
  T *state, *cell, *gates, *more;
} NAME(direction);

static T NAME(sigmoid)(T x) { return 1 / (1 + (T)exp(-(double)x)); }

static p_view NAME(matrix)(T *data, int64_t rows, int64_t columns) {
  return (p_view){(char *)data, 2, {rows, columns}, {columns, 1}};
}
static p_view NAME(turned)(const p_view *v) { return (p_view){v->data, 2, {v->size[1], v->size[0]}, {v->stride[1], v->stride[0]}}; }

static T NAME(at)(const p_view *v, int64_t k) { return *((const T *)v->data + k * v->stride[0]); }

/* The gates of all steps as far as the inputs decide them. */
static int NAME(from_inputs)(const NAME(direction) * d) {
  p_view out = {(char *)d->gates, 3, {d->steps, d->rows, d->width}, {d->rows * d->width, d->width, 1}};
  const p_view *w = d->w[0];
  const p_view turned = {w->data, 3, {d->steps, w->size[1], w->size[0]}, {0, w->stride[1], w->stride[0]}};
  P_TRY(NAME(p_mm)(&out, &d->x, &turned));
  for (int64_t i = 0; d->biases && i < d->steps * d->rows; i++)
    for (int64_t k = 0; k < d->width; k++) d->gates[i * d->width + k] += NAME(at)(d->w[2], k);
  return PLIANT_OK;
}

/* The state behind a step, of one row: `in` from the inputs, `own` from the state. */
static void NAME(step)(const NAME(direction) * d, const T *in, const T *own, T *state, T *cell) {
  const int64_t n = d->inner;
  for (int64_t k = 0; k < n; k++) {
    if (d->kind < 2) {
      const T sum = in[k] + own[k];
      state[k] = d->kind ? (sum < 0 ? 0 : sum) : (T)tanh((double)sum);
    } else if (d->kind == 2) {
      const T reset = NAME(sigmoid)(in[k] + own[k]), keep = NAME(sigmoid)(in[n + k] + own[n + k]);
      const T made = (T)tanh((double)(in[2 * n + k] + reset * own[2 * n + k]));
      state[k] = made + keep * (state[k] - made);
    } else {
      const T input = NAME(sigmoid)(in[k] + own[k]), forget = NAME(sigmoid)(in[n + k] + own[n + k]);
      const T made = (T)tanh((double)(in[2 * n + k] + own[2 * n + k]));
      cell[k] = forget * cell[k] + input * made;
      state[k] = NAME(sigmoid)(in[3 * n + k] + own[3 * n + k]) * (T)tanh((double)cell[k]);
    }
  }
}

static int NAME(steps)(const NAME(direction) * d) {
  const bool projects = d->outer != d->inner;
  p_view state = NAME(matrix)(d->state, d->rows, d->outer), own = NAME(matrix)(d->more, d->rows, d->width);
  T *hidden = projects ? d->more + d->rows * d->width : d->state;
  const p_view inside = NAME(matrix)(hidden, d->rows, d->inner), w = NAME(turned)(d->w[1]);
  P_TRY(NAME(from_inputs)(d));
  for (int64_t i = 0; i < d->steps; i++) {
    const int64_t at = d->back ? d->steps - 1 - i : i;
    P_TRY(NAME(p_mm)(&own, &state, &w));
    for (int64_t r = 0; r < d->rows; r++) {
      T *row = d->more + r * d->width;
      for (int64_t k = 0; d->biases && k < d->width; k++) row[k] += NAME(at)(d->w[3], k);
      NAME(step)(d, d->gates + (at * d->rows + r) * d->width, row, hidden + r * d->inner, d->cell + r * d->inner);
    }
    if (projects) {
      const p_view narrow = NAME(turned)(d->w[d->biases ? 4 : 2]);
      P_TRY(NAME(p_mm)(&state, &inside, &narrow));
    }
    p_copy(d->out.data + at * d->out.stride[0] * sizeof(T), d->out.stride + 1, state.data, state.stride, state.size, 2, sizeof(T));
  }
  return PLIANT_OK;
}

/* Between memory of our own and one layer's states. */
static void NAME(states)(const p_view *v, int64_t number, T *own, bool back) {
  if (!v) return;
  const int64_t stride[2] = {v->size[2], 1};
  char *place = v->data + number * v->stride[0] * sizeof(T);
  if (back)
    p_copy(place, v->stride + 1, (char *)own, stride, v->size + 1, 2, sizeof(T));
  else
    p_copy((char *)own, stride, place, v->stride + 1, v->size + 1, 2, sizeof(T));
}

static p_view NAME(steps_first)(const p_view *v, int64_t batch_first) {
  p_view found = *v;
  if (batch_first) {
    found.size[0] = v->size[1], found.size[1] = v->size[0];
    found.stride[0] = v->stride[1], found.stride[1] = v->stride[0];
  }
  return found;
}

/* `kind`: 0 tanh, 1 relu, 2 gru, 3 lstm. `c0`: none of kinds but the last; `h` and `c` are none where nothing reads them. */
int NAME(p_recurrent)(
    const p_view *out, const p_view *h, const p_view *c, const p_view *x, const p_view *h0, const p_view *c0,
    const p_view *const *weights, int64_t kind, int64_t biases, int64_t layers, int64_t both, int64_t batch_first) {
  const p_view *first = c0 ? c0 : h0;
  NAME(direction) d = {.x = NAME(steps_first)(x, batch_first), .w = weights, .kind = (int)kind, .biases = (int)biases};
  const p_view last = NAME(steps_first)(out, batch_first);
  d.steps = d.x.size[0], d.rows = d.x.size[1], d.outer = h0->size[2], d.inner = first->size[2], d.width = weights[0]->size[0];
  const int64_t ways = 1 + both, wide = ways * d.outer, seen = d.steps * d.rows * wide, count = 2 + 2 * biases + (d.outer != d.inner);
  T *room = p_new((int64_t)sizeof(T) * (d.rows * (d.outer + 2 * d.inner + d.width) + d.steps * d.rows * d.width + 2 * seen));
  if (!room) return PLIANT_MEMORY;
  d.state = room, d.cell = d.state + d.rows * d.outer, d.more = d.cell + d.rows * d.inner;
  d.gates = d.more + d.rows * (d.width + d.inner);
  T *between = d.gates + d.steps * d.rows * d.width;
  int code = PLIANT_OK;
  for (int64_t k = 0; k < layers * ways && !code; k++, d.w += count) {
    const int64_t layer = k / ways;
    d.back = (int)(k % ways);
    const p_view middle = {(char *)(between + layer % 2 * seen), 3, {d.steps, d.rows, wide}, {d.rows * wide, wide, 1}};
    if (layer && !d.back) d.x = d.out, d.x.size[2] = wide;
    if (!d.back) d.out = layer + 1 < layers ? middle : last;
    p_view whole = d.out;
    d.out.data += d.back * d.outer * d.out.stride[2] * sizeof(T);
    NAME(states)(h0, k, d.state, false);
    NAME(states)(c0, k, d.cell, false);
    code = NAME(steps)(&d);
    NAME(states)(h, k, d.state, true);
    NAME(states)(c, k, d.cell, true);
    d.out = whole;
  }
  p_delete(room);
  return code;
}
