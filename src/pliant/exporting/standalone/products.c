/* Products, convolutions, pools and recurrent layers for packaged programs: once for each type of elements. */
#include "runtime.h"

#include <string.h>

#if defined(__AVX512F__)
enum { VECTOR = 64, ROWS = 12 };
#elif defined(__AVX__)
enum { VECTOR = 32, ROWS = 6 };
#else
enum { VECTOR = 16, ROWS = 4 };
#endif
enum { COLUMNS = 256, DEPTH = 256, BLOCK = 8 * ROWS }; /* of what is packed at a time */

#define T float
#define NAME(name) name##_f32
#include "operators.h"
#include "recurrent.h"
#undef T
#undef NAME
#define T double
#define NAME(name) name##_f64
#include "operators.h"
#include "recurrent.h"
