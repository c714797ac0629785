/* Copies that go past the caches, for results larger than those: memory is written without
 * being read first, which memcpy does by itself only from about 24 MiB on. Elsewhere than on
 * x86 they are memcpy. */
#ifndef CHOIR_PAST_CACHES_H
#define CHOIR_PAST_CACHES_H

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Other threads see the bytes in order after choir__past_caches_done. */
static inline void choir__copy_past_caches(void *to_, const void *from_, size_t bytes)
{
    char *to = to_;
    const char *from = from_;
#ifdef __SSE2__
    size_t head = -(uintptr_t)to % sizeof(__m128i);
    if (head < bytes) {
        memcpy(to, from, head);
        for (to += head, from += head, bytes -= head; bytes >= sizeof(__m128i);
             to += sizeof(__m128i), from += sizeof(__m128i), bytes -= sizeof(__m128i))
            _mm_stream_si128(
                (__m128i *)(void *)to, _mm_loadu_si128((const __m128i *)(const void *)from));
    }
#endif
    memcpy(to, from, bytes);
}

static inline void choir__past_caches_done(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

#endif
