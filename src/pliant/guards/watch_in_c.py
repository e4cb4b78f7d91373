"""The C text of the checks that compare memory with what it was: what `native_watch` compiles and makes tables for.

Holds:  only memory is read that the objects of a table's owner keep alive; nothing of the program runs. A table that
        did not hold stays one that does not: what is noted of it is noted only when all of it holds.
"""

C_TEXT = """\
typedef unsigned long long u64; /* no header is included: that takes as long to compile as half of the text */
extern void *malloc(unsigned long);
extern void free(void *);

static void *(*get_item)(void *, void *); /* PyDict_GetItemWithError */
static int (*watch)(int, void *);         /* PyDict_Watch */
static int watcher = -1;

void pliant_bind(void *get, void *watch_dict, int id)
{
    get_item = (void *(*)(void *, void *))get;
    watch = (int (*)(int, void *))watch_dict;
    watcher = id;
}

/* ---- versions of dicts that a dict watcher moves, where CPython has watchers. Called with the lock held.
   A generation stands for all versions together, but for those of restless dicts, which would move it at each call. */
struct cell { u64 version, events; void *dict; struct cell *next; }; /* version: the clock at the last change */
enum { BUCKETS = 1 << 14, DEALLOCATED = 5, RESTLESS = 64 };
static struct cell *buckets[BUCKETS];
static u64 generation = 1, clock = 1;

u64 pliant_clock(void) { return clock; }

static struct cell **find(void *dict)
{
    struct cell **place = &buckets[((u64)dict >> 4) * 0x9E3779B97F4A7C15u >> 50];
    while (*place && (*place)->dict != dict)
        place = &(*place)->next;
    return place;
}

int pliant_event(int event, void *dict, void *key, void *value)
{
    struct cell **place = find(dict), *cell = *place;
    if (cell) {
        cell->version = ++clock;
        if (cell->events < RESTLESS) {
            cell->events++;
            generation++;
        }
        if (event == DEALLOCATED) { /* no check refers to it: that would keep the dict alive */
            *place = cell->next;
            free(cell);
        }
    }
    return 0;
}

void *pliant_cell(void *dict)
{
    struct cell **place = find(dict), *cell = *place;
    if (!cell) {
        if (watch(watcher, dict) < 0 || !(cell = malloc(sizeof *cell)))
            return 0;
        *cell = (struct cell){clock, 0, dict, 0};
        *place = cell;
    }
    return cell;
}

/* ---- the check. details: dict, number of keys, (key, value)...; ~0 keys: every change matters. */
static int same_items(const u64 *details)
{
    u64 count = details[1];
    if (count == ~(u64)0)
        return 0;
    for (const u64 *item = details + 2, *end = item + 2 * count; item < end; item += 2) {
        u64 found = (u64)get_item((void *)details[0], (void *)item[0]);
        if (item[1] == 1 ? !found : found != item[1])
            return 0;
    }
    return 1;
}

static int moved(const u64 *now, const u64 *before, u64 count)
{
    u64 differ = 0;
    for (u64 i = 0; i < count; i++)
        differ |= now[i] ^ before[i];
    return differ != 0;
}

/* Pairs (address, word): all are read, without a branch for each. */
static int any_moved(const u64 *p, const u64 *end)
{
    u64 differ = 0;
    for (; p < end; p += 2) {
        differ |= *(const u64 *)p[0] ^ p[1];
        __asm__("" : "+r"(differ)); /* no vectors: gathering words into them takes longer than reading them */
    }
    return differ != 0;
}

/* ---- tensors. Forms: the words, under a mask, of all tensors of one dtype, device, sizes, strides... */
typedef u64 four __attribute__((vector_size(32), aligned(8)));
struct forms {
    u64 object;                  /* offset of the C++ object in a tensor's Python object */
    u64 autograd, requires_grad; /* word of the autograd record, and of requires_grad in that */
    u64 required, history;       /* bits of that word which say that it requires grad, word which is 0 in leaves */
    u64 count, words[];          /* of a form, four or more; the mask, then one form after the other */
};

/* Four words from the i-th on: what differs from the form. */
static inline four four_from(u64 i, const u64 *object, const u64 *mask, const u64 *wanted)
{
    return (*(const four *)(object + i) & *(const four *)(mask + i)) ^ *(const four *)(wanted + i);
}

static inline four differences(const u64 *object, const struct forms *forms, u64 form)
{
    const u64 *mask = forms->words, *wanted = mask + form, last = forms->count - 4;
    four found = four_from(last, object, mask, wanted);
    if (last > 16 && last <= 20) { /* the usual: without a loop */
#pragma GCC unroll 5
        for (u64 i = 0; i < 20; i += 4)
            found |= four_from(i, object, mask, wanted);
        return found;
    }
    for (u64 i = 0; i < last; i += 4)
        found |= four_from(i, object, mask, wanted);
    return found;
}

static inline int any(four found) { return (found[0] | found[1] | found[2] | found[3]) != 0; }

static void *counted(u64 object)
{
    unsigned *count = (unsigned *)object;
    if ((int)*count >= 0) /* negative: immortal. No count comes near 2**31. */
        ++*count;
    return count;
}

/* What a builtin function's self, a tuple, has first: the bytes of a table. */
static u64 *table_of(void *self) { return (u64 *)(*(char **)((char *)self + 24) + 32); }

/* A table: the objects to return (unchanged, changed), the newest version among the dicts when all held, the generation
   then, how many of the dicts are restless and which, and the lengths of lists, in the order of what keeps their memory
   alive: words of objects, as pairs; where versions of dicts are; runs behind those words (address, count, words...);
   groups of tensors (class, word of the autograd record, form, count; tensor, C++ object, its autograd record...).
   Then the index of the details of each dict, details, and the tensors' forms. */
enum { FEW = 8 };
struct watched {
    u64 unchanged, changed, newest, generation, restless, which[FEW], words, dicts, runs, tensors, details, list[];
};

static inline u64 version(u64 place) { return *(const u64 *)place; }

/* Versions come from one clock: a dict is as it was if its version is not newer than the newest then. */
static int dicts_hold(struct watched *t, const u64 *dicts, const u64 *indexes)
{
    u64 now = generation, newest = t->newest;
    if (watcher >= 0 && t->generation == now && t->restless <= FEW) {
        for (u64 i = 0; i < t->restless; i++) {
            u64 which = t->which[i], found = version(dicts[which]);
            if (found > t->newest && !same_items((u64 *)t + indexes[which]))
                return 0;
            newest = found > newest ? found : newest;
        }
        t->newest = newest;
        return 1;
    }
    t->generation = t->restless = 0; /* none, until all hold */
    for (u64 i = 0; i < t->dicts; i++) {
        u64 found = version(dicts[i]);
        newest = found > newest ? found : newest;
        __asm__("" : "+r"(newest)); /* no vectors here either */
    }
    if (newest == t->newest && watcher < 0)
        return 1;
    for (u64 i = 0; i < t->dicts; i++) {
        if (version(dicts[i]) > t->newest && !same_items((u64 *)t + indexes[i]))
            return 0;
        if (watcher >= 0 && ((struct cell *)dicts[i])->events == RESTLESS && t->restless++ < FEW)
            t->which[t->restless - 1] = i;
    }
    t->newest = newest;
    t->generation = now;
    return 1;
}

static int tensors_hold(const u64 *p, const u64 *end, const struct forms *forms)
{
    four differ = {0};
    while (p < end) {
        const u64 class = p[0], requires_grad = p[1], form = p[2], *stop = p + 4 + p[3];
        for (p += 4; p < stop; p += 3) {
            const u64 *tensor = (const u64 *)p[0], *object = (const u64 *)p[1], *record = (const u64 *)p[2];
            if (tensor[1] != class || *(const u64 *)((const char *)tensor + forms->object) != p[1])
                return 0;
            if (object[forms->autograd] != p[2] || (record && record[forms->requires_grad] != requires_grad))
                return 0;
            differ |= differences(object, forms, form);
        }
    }
    return !any(differ);
}

static int holds(struct watched *t)
{
    u64 *words = t->list, *dicts = words + t->words, *runs = dicts + t->dicts, *tensors = runs + t->runs;
    u64 *indexes = tensors + t->tensors;
    const struct forms *forms = (const struct forms *)(indexes + t->dicts + t->details);
    if (any_moved(words, dicts) || !dicts_hold(t, dicts, indexes))
        return 0;
    for (const u64 *p = runs; p < tensors; p += 2 + p[1])
        if (moved((u64 *)p[0], p + 2, p[1]))
            return 0;
    return tensors_hold(tensors, indexes, forms);
}

void *pliant_watch(void *self, void *unused)
{
    struct watched *t = (struct watched *)table_of(self);
    return counted(holds(t) ? t->unchanged : t->changed);
}

/* Whether arguments are tensors like those of the table.
   The table: the objects to return (alike, not alike); the length of a list (index in the arguments, class, form, kind);
   forms. Kinds are 0 without an autograd record; else the record's first word, which says of what class it is, and 1 and
   2 for leaves (2: it requires grad), 3 for others. */
void *pliant_alike(void *self, void *args)
{
    const u64 *t = table_of(self), *end = t + 3 + t[2];
    const struct forms *forms = (const struct forms *)end;
    for (const u64 *p = t + 3; p < end; p += 4) {
        const char *tensor = *(const char **)((const char *)args + 24 + 8 * p[0]);
        if (*(const u64 *)(tensor + 8) != p[1])
            return counted(t[1]);
        const u64 *object = *(const u64 **)(tensor + forms->object);
        if (!object || any(differences(object, forms, p[2])))
            return counted(t[1]);
        const u64 *record = (const u64 *)object[forms->autograd];
        if (record ? p[3] != (record[0] << 2 | (record[forms->history] ? 3 : record[forms->requires_grad] & forms->required ? 2 : 1)) : p[3])
            return counted(t[1]);
    }
    return counted(t[0]);
}
"""
