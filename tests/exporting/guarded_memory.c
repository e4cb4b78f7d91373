/* Memory whose every block ends at a page that may not be touched, for `hostile_calls.py`: whatever reads or writes behind a
   tensor, or in one that is gone, ends the process. Preloaded; it serves posix_memalign, by which PyTorch makes tensors. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096ul
#define ROOM (1ul << 42)
#define LARGEST (1ul << 28)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *room, *next;
static void (*plain_free)(void *);
static int at_front;

static int is_ours(const void *block) { return room && (const char *)block >= room && (const char *)block < room + ROOM; }

static size_t pages_of(size_t size) { return (size + 15) / 16 * 16 + PAGE - 1 & ~(PAGE - 1); }

int posix_memalign(void **found, size_t alignment, size_t size) {
    if (size > LARGEST) return ENOMEM;
    pthread_mutex_lock(&lock);
    if (!room) {
        room = next = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        at_front = getenv("GUARD_FRONT") != NULL;
        if (room == MAP_FAILED) abort();
    }
    size_t pages = pages_of(size);
    char *block = next + 3 * PAGE; /* behind a guard, the size, and a guard */
    next = block + pages;
    pthread_mutex_unlock(&lock);
    if (next > room + ROOM) return ENOMEM;
    if (mprotect(block - 2 * PAGE, PAGE, PROT_READ | PROT_WRITE)) return ENOMEM;
    if (pages && mprotect(block, pages, PROT_READ | PROT_WRITE)) return ENOMEM;
    size_t start = at_front ? 0 : pages - (size + 15) / 16 * 16;
    *(size_t *)(block - 2 * PAGE) = pages;
    memset(block, 0xa5, pages);
    *found = block + start;
    return 0;
}

void free(void *block) {
    if (!is_ours(block)) {
        if (!plain_free) plain_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
        plain_free(block);
        return;
    }
    char *first = (char *)((uintptr_t)block & ~(PAGE - 1));
    size_t all = *(size_t *)(first - 2 * PAGE) + 2 * PAGE;
    madvise(first - 2 * PAGE, all, MADV_DONTNEED);
    mprotect(first - 2 * PAGE, all, PROT_NONE);
}
