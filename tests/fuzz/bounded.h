/* SPDX-License-Identifier: Apache-2.0 */
/* bounded.h - what one input of a fuzz target may cost in memory and time. */
/*
 * Every target is linked so that its LLVMFuzzerTestOneInput is called through bounded_input.c, by
 * libFuzzer and by replay.c alike: a new target is bounded without a line of its own. An input that
 * costs more ends the program with a message and abort(), so that libFuzzer keeps it. The bound is
 * the one that tests/attacks/README.md states; a parser that passes it is mended, not the bound.
 */
#ifndef DCPK_TESTS_FUZZ_BOUNDED_H
#define DCPK_TESTS_FUZZ_BOUNDED_H

#include <stddef.h>

/* Bytes of memory at once, whoever allocates them, libraries too: so many, and for each byte of
 * the input. */
#define BOUNDED_BYTES        ((size_t)64 << 20)
#define BOUNDED_BYTES_A_BYTE ((size_t)100)

/* Set by a target: what a library takes beside that, whatever the size of the input; else 0. */
extern size_t bounded_more_bytes;

/* Seconds of processor time, all threads together; a sanitizer takes a multiple of them. */
#define BOUNDED_SECONDS        1.0
#define BOUNDED_SECONDS_A_BYTE 2e-6

#ifdef __has_feature /* clang's; gcc has macros */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BOUNDED_IS_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BOUNDED_IS_SANITIZED 1
#endif
#ifdef BOUNDED_IS_SANITIZED
#define BOUNDED_TIMES 10.0
#else
#define BOUNDED_TIMES 1.0
#endif

/* The most that one of the inputs so far has cost. */
struct bounded_cost {
    size_t n_bytes;
    double seconds;
};
struct bounded_cost bounded_most(void);

#endif
