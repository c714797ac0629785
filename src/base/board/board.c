/* Writing the board: see board.h.
 *
 * The directory changes under a lock, and an entry's kind is stored last, so a reader never
 * follows an incomplete entry. Records never move. A record that was given back is reused for
 * the next record of equal size. */
#include "base/board/board.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/board/board_layout.h"
#include "base/process/forks.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    choir__board_page *page; /* NULL: not created */
    bool tried;
    int fd;
    dev_t device; /* with inode: tells whether fd is still this file */
    ino_t inode;
    uint32_t used; /* bytes; new records follow them */
} mine = {.fd = -1};
/* mine.page for threads without the lock; it stays where it is, also in a fork */
static _Atomic(choir__board_page *) shown;

/* Returns a new file for a board, or -1. Descriptors 0 to 2 are left free for standard
 * streams. */
static int new_file(void)
{
    struct stat file;
    int low =
        memfd_create(CHOIR__BOARD_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (low < 0 && errno == EINVAL)
        low = memfd_create(CHOIR__BOARD_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (low < 0)
        return -1;
    int fd = fcntl(low, F_DUPFD_CLOEXEC, 3);
    close(low);
    if (fd >= 0 && (ftruncate(fd, CHOIR__BOARD_BYTES) || fstat(fd, &file))) {
        close(fd);
        return -1;
    }
    if (fd >= 0) {
        mine.device = file.st_dev;
        mine.inode = file.st_ino;
    }
    return fd;
}

/* Fixes the file's size and allows writes through this mapping only. */
static void seal(int fd)
{
    int size = F_SEAL_SHRINK | F_SEAL_GROW;
    if (fcntl(fd, F_ADD_SEALS, size | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
        fcntl(fd, F_ADD_SEALS, size | F_SEAL_SEAL);
}

/* --- forks --- */

/* An excluded thread must not wait: the thread that forks and waits for it may hold the lock.
 */
static void before_fork(void)
{
    if (!choir__forks_excluded())
        pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    if (!choir__forks_excluded())
        pthread_mutex_unlock(&lock);
}

/* Uses system calls only, since the parent may have had threads. */
static void in_child(void)
{
    choir__board_page *page = mine.page;
    struct stat file;
    int old = mine.fd;
    bool ours = page && old >= 0 && fstat(old, &file) == 0 && file.st_dev == mine.device &&
                file.st_ino == mine.inode;
    if (page) {
        mine.fd = new_file();
        if (mine.fd >= 0 && pwrite(mine.fd, page, mine.used, 0) == (ssize_t)mine.used &&
            mmap(page, CHOIR__BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                mine.fd, 0) == page) {
            seal(mine.fd);
        } else { /* not visible to readers, but records must stay writable */
            if (mine.fd >= 0)
                close(mine.fd);
            mine.fd = -1;
            mmap(page, CHOIR__BOARD_BYTES, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        }
        page->pid = getpid();
        for (int i = 0; i < CHOIR__BOARD_ENTRIES; i++)
            if (atomic_load(&page->directory[i].kind) == CHOIR__BOARD_GROUP)
                atomic_store(&page->directory[i].kind, CHOIR__BOARD_GONE);
    }
    if (ours)
        close(old);
    pthread_mutex_init(&lock, NULL);
}

/* --- the process's own --- */

static void introduce(choir__board_page *page)
{
    page->version = CHOIR__BOARD_VERSION;
    page->pid = getpid();
    page->rank = page->world = -1;
    page->started = choir__now();
    if (gethostname(page->host, sizeof page->host - 1))
        page->host[0] = '\0';
    strncpy(page->program, program_invocation_short_name, sizeof page->program - 1);
    atomic_store(&page->magic, CHOIR__BOARD_MAGIC);
}

/* Under lock. */
static choir__board_page *own_page(void)
{
    if (mine.tried)
        return mine.page;
    mine.tried = true;
    int fd = new_file();
    if (fd < 0)
        return NULL;
    void *p = mmap(NULL, CHOIR__BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        close(fd);
        return NULL;
    }
    seal(fd);
    mine.fd = fd;
    mine.page = p;
    mine.used = CHOIR__BOARD_RECORDS;
    introduce(mine.page);
    atomic_store(&shown, mine.page);
    pthread_atfork(before_fork, after_fork, in_child);
    return mine.page;
}

/* Returns a free entry for a record of `bytes` bytes, or NULL. Under lock. */
static choir__board_entry *place(choir__board_page *page, uint32_t bytes)
{
    for (int i = 0; i < CHOIR__BOARD_ENTRIES; i++) {
        choir__board_entry *e = &page->directory[i];
        if (atomic_load(&e->kind) != CHOIR__BOARD_FREE || e->taken)
            continue;
        if (e->bytes && e->bytes != bytes)
            continue;
        if (!e->bytes) {
            if (CHOIR__BOARD_BYTES - mine.used < bytes)
                return NULL;
            e->offset = mine.used;
            e->bytes = bytes;
            mine.used += bytes;
        }
        return e;
    }
    return NULL;
}

void *choir__board_take(choir__board_kind kind, size_t bytes)
{
    void *record = NULL;
    if (bytes > CHOIR__BOARD_BYTES / 2)
        return NULL;
    pthread_mutex_lock(&lock);
    choir__board_page *page = own_page();
    choir__board_entry *e = page ? place(page, (uint32_t)((bytes + 63) & ~(size_t)63)) : NULL;
    if (e) {
        e->taken = kind;
        record = memset((char *)page + e->offset, 0, e->bytes);
    }
    pthread_mutex_unlock(&lock);
    return record;
}

/* Under lock. */
static choir__board_entry *entry_of(const void *record)
{
    size_t offset = (size_t)((const char *)record - (const char *)mine.page);
    for (int i = 0; i < CHOIR__BOARD_ENTRIES; i++)
        if (mine.page->directory[i].offset == offset)
            return &mine.page->directory[i];
    return NULL;
}

void choir__board_show(void *record)
{
    if (!record)
        return;
    pthread_mutex_lock(&lock);
    choir__board_entry *e = entry_of(record);
    if (e)
        atomic_store(&e->kind, e->taken);
    pthread_mutex_unlock(&lock);
}

void choir__board_give_back(void *record)
{
    if (!record)
        return;
    pthread_mutex_lock(&lock);
    choir__board_entry *e = entry_of(record);
    if (e) {
        atomic_store(&e->kind, CHOIR__BOARD_FREE);
        e->taken = CHOIR__BOARD_FREE;
    }
    pthread_mutex_unlock(&lock);
}

void choir__board_job(uint64_t job, int rank, int world, int generation)
{
    pthread_mutex_lock(&lock);
    choir__board_page *page = own_page();
    if (page) {
        page->job = job;
        page->rank = rank;
        page->world = world;
        page->generation = generation;
    }
    pthread_mutex_unlock(&lock);
}

void choir__board_beat(void)
{
    choir__board_page *page = atomic_load_explicit(&shown, memory_order_acquire);
    if (page)
        atomic_fetch_add_explicit(&page->beats, 1, memory_order_relaxed);
}

void choir__board_step(void)
{
    choir__board_page *page = atomic_load_explicit(&shown, memory_order_acquire);
    if (page)
        atomic_fetch_add_explicit(&page->steps, 1, memory_order_relaxed);
}

uint64_t choir__board_own_job(void)
{
    pthread_mutex_lock(&lock);
    uint64_t job = mine.page ? mine.page->job : 0;
    pthread_mutex_unlock(&lock);
    return job;
}
