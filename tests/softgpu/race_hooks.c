/* The functions that code compiled with -fsanitize=thread calls: each tells the race checker of
 * one access. They stand in for the sanitizer's library, which knows threads of the host, and
 * neither blocks nor warps. Builds with a sanitizer leave this file out, and check no kernels.
 */
#include "race.h"

#define HERE __builtin_return_address(0)
#define HOOK __attribute__((visibility("default")))

HOOK void __tsan_init(void);
HOOK void __tsan_func_entry(void *caller);
HOOK void __tsan_func_exit(void);

void __tsan_init(void)
{
    softgpu_race_enable();
}

void __tsan_func_entry(void *caller)
{
    (void)caller;
}

void __tsan_func_exit(void)
{
}

#define ACCESS(name, n, writes)                                                                \
    HOOK void __tsan_##name##n(void *p);                                                       \
    void __tsan_##name##n(void *p)                                                             \
    {                                                                                          \
        softgpu_race_see(p, n, writes, false, HERE);                                           \
    }
#define ACCESSES(n)                                                                            \
    ACCESS(read, n, false)                                                                     \
    ACCESS(write, n, true)                                                                     \
    ACCESS(unaligned_read, n, false)                                                           \
    ACCESS(unaligned_write, n, true)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

#define RANGE(name, writes)                                                                    \
    HOOK void __tsan_##name##_range(void *p, unsigned long n);                                 \
    void __tsan_##name##_range(void *p, unsigned long n)                                       \
    {                                                                                          \
        softgpu_race_see(p, n, writes, false, HERE);                                           \
    }
RANGE(read, false)
RANGE(write, true)

HOOK void __tsan_vptr_update(void **p, void *v);
void __tsan_vptr_update(void **p, void *v)
{
    (void)p;
    (void)v;
}

/* --- atomics: integers alone, as the kernels have them --- */

HOOK void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#define CHANGE(bits, name)                                                                     \
    HOOK uint##bits##_t __tsan_atomic##bits##_##name(                                          \
        volatile uint##bits##_t *p, uint##bits##_t v, int order);                              \
    uint##bits##_t __tsan_atomic##bits##_##name(                                               \
        volatile uint##bits##_t *p, uint##bits##_t v, int order)                               \
    {                                                                                          \
        (void)order;                                                                           \
        softgpu_race_see(p, bits / 8, true, true, HERE);                                       \
        return __atomic_##name(p, v, __ATOMIC_SEQ_CST);                                        \
    }
#define ATOMICS(bits)                                                                          \
    CHANGE(bits, fetch_add)                                                                    \
    CHANGE(bits, fetch_sub)                                                                    \
    CHANGE(bits, fetch_and)                                                                    \
    CHANGE(bits, fetch_or)                                                                     \
    CHANGE(bits, fetch_xor)                                                                    \
    HOOK uint##bits##_t __tsan_atomic##bits##_exchange(                                        \
        volatile uint##bits##_t *p, uint##bits##_t v, int order);                              \
    uint##bits##_t __tsan_atomic##bits##_exchange(                                             \
        volatile uint##bits##_t *p, uint##bits##_t v, int order)                               \
    {                                                                                          \
        (void)order;                                                                           \
        softgpu_race_see(p, bits / 8, true, true, HERE);                                       \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                    \
    }                                                                                          \
    HOOK uint##bits##_t __tsan_atomic##bits##_load(                                            \
        const volatile uint##bits##_t *p, int order);                                          \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *p, int order)     \
    {                                                                                          \
        (void)order;                                                                           \
        softgpu_race_see(p, bits / 8, false, true, HERE);                                      \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                           \
    }                                                                                          \
    HOOK void __tsan_atomic##bits##_store(                                                     \
        volatile uint##bits##_t *p, uint##bits##_t v, int order);                              \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *p, uint##bits##_t v, int order)  \
    {                                                                                          \
        (void)order;                                                                           \
        softgpu_race_see(p, bits / 8, true, true, HERE);                                       \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                              \
    }                                                                                          \
    HOOK int __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t *p,         \
        uint##bits##_t *expected, uint##bits##_t v, int order, int otherwise);                 \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t *p,              \
        uint##bits##_t *expected, uint##bits##_t v, int order, int otherwise)                  \
    {                                                                                          \
        (void)order;                                                                           \
        (void)otherwise;                                                                       \
        softgpu_race_see(p, bits / 8, true, true, HERE);                                       \
        return __atomic_compare_exchange_n(                                                    \
            p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                        \
    }                                                                                          \
    HOOK uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile uint##bits##_t *p, \
        uint##bits##_t expected, uint##bits##_t v, int order, int otherwise);                  \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile uint##bits##_t *p,      \
        uint##bits##_t expected, uint##bits##_t v, int order, int otherwise)                   \
    {                                                                                          \
        (void)order;                                                                           \
        (void)otherwise;                                                                       \
        softgpu_race_see(p, bits / 8, true, true, HERE);                                       \
        __atomic_compare_exchange_n(                                                           \
            p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                       \
        return expected;                                                                       \
    }
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
