/* The conformance suite on a device whose kernels do not accept the host's memory:
 * CHOIR_TEST_DEVICE=cuda:0.
 *
 * Trials copy their operands to the device's memory. Tests that call a table's kernels
 * themselves call those of device_table, which run the device's kernels in its queue. Memory
 * that the arguments name is opened to the device in place, as whole mappings of the process,
 * for the time of the call. A kernel that the device does not have is skipped. */
#ifndef CHOIR_TEST_ON_DEVICE_H
#define CHOIR_TEST_ON_DEVICE_H

#include <malloc.h>
#include <unistd.h>
#include <sys/mman.h>
#include "device/device.h"
#include "device/far.h"

enum { MAX_OPENED = 64 };

typedef struct mapping {
    uintptr_t at, end;
    bool writable;
} mapping;

static struct {
    mapping list[MAX_OPENED];
    int count;
} opened;

/* Returns the device on which the suite runs; NULL: the processor. */
static inline choir_device *test_device(void)
{
    const char *name = getenv("CHOIR_TEST_DEVICE");
    choir_device *device = name ? choir_device_find(name) : NULL;
    if (name && !device) {
        printf("skipped: %s\n", choir_error_message());
        exit(77);
    }
    return device;
}

/* --- the process's memory, opened to the device --- */

/* Reads the next mapping. Returns false after the last. data: it is readable and not code;
 * named: it is of a file. */
static inline bool next_mapping(FILE *maps, mapping *m, bool *data, bool *named)
{
    char line[512], *rest;
    if (!fgets(line, sizeof line, maps)) /* "at-end rwxp offset device inode name" */
        return false;
    m->at = strtoull(line, &rest, 16);
    m->end = strtoull(rest + 1, &rest, 16);
    m->writable = rest[2] == 'w';
    *data = rest[1] == 'r' && rest[3] == '-';
    *named = strchr(rest, '/') || strchr(rest, '[');
    return true;
}

/* Finds the mapping of p, and adds the zeros that follow a file's data, because an array may be
 * in both. Returns false if p is not an address of data. */
static inline bool mapping_of(uintptr_t p, mapping *m)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    bool found = false, data, named;
    while (!found && next_mapping(maps, m, &data, &named))
        found = p >= m->at && p < m->end && data;
    mapping zeros;
    bool zeros_data, zeros_named;
    if (found && named && m->writable &&
        next_mapping(maps, &zeros, &zeros_data, &zeros_named) && zeros.at == m->end &&
        zeros.writable && zeros_data && !zeros_named)
        m->end = zeros.end;
    fclose(maps);
    return found;
}

/* Opens the mapping of p to the device. Returns false if p is not an address of the process's
 * own data. */
static inline bool open_memory_at(const choir__far *far, uintptr_t p)
{
    mapping m;
    for (int i = 0; i < opened.count; i++)
        if (p >= opened.list[i].at && p < opened.list[i].end)
            return true;
    if (p < 1 << 16 || p >> 47 || far->owns((void *)p) || !mapping_of(p, &m))
        return false;
    for (int i = opened.count - 1; i >= 0; i--) /* it has grown */
        if (opened.list[i].at < m.end && m.at < opened.list[i].end) {
            far->unreach((void *)opened.list[i].at);
            opened.list[i] = opened.list[--opened.count];
        }
    if (!m.writable) /* constants: a device opens what can be written */
        mprotect((void *)m.at, m.end - m.at, PROT_READ | PROT_WRITE);
    assert_true(opened.count < MAX_OPENED);
    if (far->reach((void *)m.at, m.end - m.at) != (void *)m.at)
        fail_msg("the device can't be shown the test's memory");
    opened.list[opened.count++] = m;
    return true;
}

/* Opens the mappings to which the words of the arguments point. If there are any, the stack and
 * the heap are opened too, as entries and leaves point on to them. Large blocks must therefore
 * be in the heap: M_MMAP_MAX is 0. */
static inline void open_memory(const choir__far *far, const void *args, size_t bytes)
{
    bool any = false;
    mallopt(M_MMAP_MAX, 0);
    for (size_t i = 0; i + sizeof(uintptr_t) <= bytes; i += sizeof(uintptr_t)) {
        uintptr_t p;
        memcpy(&p, (const char *)args + i, sizeof p);
        any = open_memory_at(far, p) || any;
    }
    if (any) {
        open_memory_at(far, (uintptr_t)&bytes);
        open_memory_at(far, (uintptr_t)sbrk(0) - 1);
    }
}

/* Closes all mappings. An open one could grow, or malloc could return it to the system,
 * unnoticed by the device; and a copy from a block that is partly open is refused. */
static inline void close_memory(const choir__far *far)
{
    while (opened.count > 0)
        far->unreach((void *)opened.list[--opened.count].at);
}

/* --- calls --- */

/* Returns whether the device has the kernel at this offset of its table. */
static inline bool device_has(choir_device *device, size_t kernel)
{
    choir__queue_task *fn;
    memcpy(&fn, (const char *)device->kernels + kernel, sizeof fn);
    return fn != NULL;
}

/* Calls a kernel through the device's queue and waits. Pointers are the device's. */
static inline void call_on_device(
    choir_device *device, size_t kernel, const void *args, size_t bytes)
{
    choir__queue_task *fn;
    memcpy(&fn, (const char *)device->kernels + kernel, sizeof fn);
    choir__queue_issue(device->queue, fn, args, bytes);
    if (choir_device_sync(device) != CHOIR_OK)
        fail_msg("%s", choir_error_message());
}

/* Like call_on_device, with pointers to the test's own memory. */
static inline void call_with_host_memory(
    choir_device *device, size_t kernel, const void *args, size_t bytes)
{
    open_memory(device->far, args, bytes);
    call_on_device(device, kernel, args, bytes);
    close_memory(device->far);
}

static inline void call_or_skip(size_t kernel, const void *args, size_t bytes)
{
    choir_device *device = test_device();
    if (!device_has(device, kernel))
        skip();
    call_with_host_memory(device, kernel, args, bytes);
}

#define X(name)                                                                                \
    static inline void device_##name(const choir__k_##name *k)                                 \
    {                                                                                          \
        call_or_skip(offsetof(choir__kernels, name), k, sizeof *k);                            \
    }
CHOIR__KERNEL_LIST(X)
#undef X

#define X(name) .name = device_##name,
static const choir__kernels device_table = {CHOIR__KERNEL_LIST(X)};
#undef X

/* --- operands --- */

/* A copy of an operand's memory on the device. */
typedef struct on_device {
    choir__pool_block *block;
    size_t bytes;
} on_device;

static inline on_device to_device(choir_device *device, const void *from, size_t bytes)
{
    on_device d = {choir__block_new(device, bytes), bytes};
    assert_non_null(d.block);
    if (device->far->put(choir__block_data(d.block), from, bytes) != CHOIR_OK)
        fail_msg("%s", choir_error_message());
    return d;
}

static inline void from_device(choir_device *device, on_device d, void *to)
{
    if (device->far->get(to, choir__block_data(d.block), d.bytes) != CHOIR_OK)
        fail_msg("%s", choir_error_message());
    choir__block_free(d.block);
}

#endif
