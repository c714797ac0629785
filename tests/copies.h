/* COPIES(X) is X(NAME) for each instruction set of the kernels' copies in this build. A
 * build with CHOIR_CHECK_ALL=OFF lacks those that the processor lacks (CMakeLists.txt). */
#ifndef CHOIR_TEST_COPIES_H
#define CHOIR_TEST_COPIES_H

#if defined(__x86_64__) && !defined(CHOIR_WITHOUT_AVX512)
#define COPIES(X) X(baseline) X(avx2) X(avx512)
#elif defined(__x86_64__) && !defined(CHOIR_WITHOUT_AVX2)
#define COPIES(X) X(baseline) X(avx2)
#else
#define COPIES(X) X(baseline)
#endif

#endif
