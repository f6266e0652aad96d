/* SPDX-License-Identifier: Apache-2.0 */
/* costly.c - a target whose inputs "memory" and "time" cost too much: the bound is kept. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fuzz/bounded.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define N_BLOCKS 10 /* none of them is too large alone */

static void take_memory(void)
{
    static void *volatile blocks[N_BLOCKS]; /* else the compiler leaves them out */

    for (size_t i = 0; i < N_BLOCKS; i++) {
        blocks[i] = malloc(BOUNDED_BYTES / N_BLOCKS + BOUNDED_BYTES_A_BYTE);
        if (blocks[i] == NULL)
            exit(1);
    }
    for (size_t i = 0; i < N_BLOCKS; i++)
        free(blocks[i]);
}

static void take_time(void)
{
    const clock_t start = clock();

    while ((double)(clock() - start) / CLOCKS_PER_SEC < 1.1 * BOUNDED_SECONDS * BOUNDED_TIMES)
        ;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes == strlen("memory") && memcmp(data, "memory", n_bytes) == 0)
        take_memory();
    if (n_bytes == strlen("time") && memcmp(data, "time", n_bytes) == 0)
        take_time();
    return 0;
}
