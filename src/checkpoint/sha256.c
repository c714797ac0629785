/* SHA-256: see sha256.h.
 *
 * The processor's instructions do two rounds each on a state kept as ABEF and CDGH. The message
 * schedule is a ring of four vectors of four words: group g of four rounds uses words 4g to
 * 4g+3, and makes those of group g+4 out of the ring. */
#include "checkpoint/sha256.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

static const uint32_t constants[64] __attribute__((aligned(16))) = {0x428a2f98, 0x71374491,
    0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
    0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc,
    0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354,
    0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c,
    0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f,
    0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static bool has_instructions(void)
{
    return __builtin_cpu_supports("sha") && __builtin_cpu_supports("sse4.1");
}

__attribute__((target("sha,sse4.1"))) static void add_blocks(
    uint32_t sum[8], const unsigned char *data, size_t blocks)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)sum), 0xb1);
    __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(sum + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xf0);
    for (; blocks; blocks--, data += 64) {
        __m128i ring[4], abef_before = abef, cdgh_before = cdgh;
        for (int i = 0; i < 4; i++)
            ring[i] = _mm_shuffle_epi8(
                _mm_loadu_si128((const __m128i *)(const void *)(data + (size_t)16 * i)), swap);
#pragma GCC unroll 16
        for (int g = 0; g < 16; g++) {
            __m128i words = ring[g & 3], last = ring[(g + 3) & 3];
            __m128i sums = _mm_add_epi32(
                words, _mm_load_si128((const __m128i *)(const void *)(constants + 4 * g)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sums);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sums, 0x0e));
            __m128i next = _mm_add_epi32(_mm_sha256msg1_epu32(words, ring[(g + 1) & 3]),
                _mm_alignr_epi8(last, ring[(g + 2) & 3], 4));
            ring[g & 3] = _mm_sha256msg2_epu32(next, last);
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    low = _mm_shuffle_epi32(abef, 0x1b);
    high = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)sum, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128((__m128i *)(sum + 4), _mm_alignr_epi8(high, low, 8));
}
#else
static bool has_instructions(void)
{
    return false;
}

static void add_blocks(uint32_t sum[8], const unsigned char *data, size_t blocks)
{
    (void)sum;
    (void)data;
    (void)blocks;
}
#endif

void choir__sha256_init(choir__sha256_state *s)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    s->quick = has_instructions();
    s->bytes = 0;
    memcpy(s->sum, start, sizeof start);
    crypto_hash_sha256_init(&s->plain);
}

void choir__sha256_update(choir__sha256_state *s, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    size_t held = s->bytes % sizeof s->block;
    if (!s->quick) {
        crypto_hash_sha256_update(&s->plain, at, bytes);
        return;
    }
    s->bytes += bytes;
    if (held) {
        size_t more = sizeof s->block - held < bytes ? sizeof s->block - held : bytes;
        memcpy(s->block + held, at, more);
        at += more;
        bytes -= more;
        if (held + more < sizeof s->block)
            return;
        add_blocks(s->sum, s->block, 1);
    }
    add_blocks(s->sum, at, bytes / sizeof s->block);
    if (bytes % sizeof s->block)
        memcpy(
            s->block, at + bytes / sizeof s->block * sizeof s->block, bytes % sizeof s->block);
}

void choir__sha256_final(choir__sha256_state *s, char hex[CHOIR__SHA256_HEX])
{
    unsigned char hash[CHOIR__SHA256_BYTES], end[128] = {0};
    size_t held = s->bytes % 64, blocks = held < 56 ? 1 : 2;
    if (s->quick) {
        memcpy(end, s->block, held);
        end[held] = 0x80;
        for (size_t i = 0; i < 8; i++) /* the length in bits, its highest byte first */
            end[64 * blocks - 1 - i] = (unsigned char)(s->bytes * 8 >> (8 * i));
        add_blocks(s->sum, end, blocks);
        for (size_t i = 0; i < CHOIR__SHA256_BYTES; i++)
            hash[i] = (unsigned char)(s->sum[i / 4] >> (24 - 8 * (i % 4)));
    } else {
        crypto_hash_sha256_final(&s->plain, hash);
    }
    sodium_bin2hex(hex, CHOIR__SHA256_HEX, hash, sizeof hash);
}
