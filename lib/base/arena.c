/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - blocks of growing size, handed out from front to back. */
#include "lib/base/arena.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"

#define FIRST_BLOCK_BYTES 4096
#define MAX_BLOCK_BYTES   (1024 * 1024)
#define ALIGNMENT         8

struct block {
    struct block *next;
    size_t n_bytes;
    size_t used_bytes;
    _Alignas(ALIGNMENT) uint8_t data[];
};

/* Invariant: memory of the first block past used_bytes is zero and was never handed out. */
struct dcpk_arena {
    struct block *blocks; /* the newest first; only that one is filled further */
    size_t next_block_bytes;
    uint64_t used_bytes;
    uint64_t limit_bytes;
};

struct dcpk_arena *dcpk_arena_new(uint64_t limit_bytes, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_alloc(sizeof *arena, err);

    if (arena == NULL)
        return NULL;
    arena->limit_bytes = limit_bytes;
    arena->next_block_bytes = FIRST_BLOCK_BYTES;
    return arena;
}

void dcpk_arena_free(struct dcpk_arena *arena)
{
    if (arena == NULL)
        return;
    while (arena->blocks != NULL) {
        struct block *block = arena->blocks;
        arena->blocks = block->next;
        dcpk_free(block);
    }
    dcpk_free(arena);
}

/*
 * A block with room for n_bytes. A large request gets a block of its own behind the first, which
 * stays in use: its rest is not lost.
 */
static struct block *add_block(struct dcpk_arena *arena, size_t n_bytes, struct dcpk_error *err)
{
    const bool own = n_bytes > arena->next_block_bytes / 4;
    const size_t room = own ? n_bytes : arena->next_block_bytes;
    struct block *block;

    if (room > SIZE_MAX - sizeof *block) {
        dcpk_fail(err, DCPK_ENOMEM, "out of memory: %zu bytes asked", n_bytes);
        return NULL;
    }
    block = dcpk_alloc(sizeof *block + room, err);
    if (block == NULL)
        return NULL;
    block->n_bytes = room;
    if (own && arena->blocks != NULL) {
        block->next = arena->blocks->next;
        arena->blocks->next = block;
        return block;
    }
    block->next = arena->blocks;
    arena->blocks = block;
    if (!own && arena->next_block_bytes < MAX_BLOCK_BYTES)
        arena->next_block_bytes *= 2;
    return block;
}

static void *take(struct dcpk_arena *arena, size_t n_bytes, size_t alignment,
                  struct dcpk_error *err)
{
    struct block *block = arena->blocks;
    size_t pad = 0;
    void *memory;

    if (block != NULL)
        pad = (alignment - block->used_bytes % alignment) % alignment;
    if (block == NULL || block->n_bytes - block->used_bytes < pad ||
        block->n_bytes - block->used_bytes - pad < n_bytes) {
        block = NULL;
        pad = 0;
    }
    /* used_bytes counts memory that exists, so that the sum of three sizes cannot wrap here */
    if (arena->limit_bytes != 0 &&
        (n_bytes > arena->limit_bytes || arena->used_bytes + pad > arena->limit_bytes - n_bytes)) {
        dcpk_fail(err, DCPK_ERANGE, "metadata passes the limit of %llu bytes: %zu more asked",
                  (unsigned long long)arena->limit_bytes, n_bytes);
        return NULL;
    }
    if (block == NULL)
        block = add_block(arena, n_bytes, err);
    if (block == NULL)
        return NULL;
    memory = block->data + block->used_bytes + pad;
    block->used_bytes += pad + n_bytes;
    arena->used_bytes += pad + n_bytes;
    return memory;
}

void *dcpk_arena_alloc(struct dcpk_arena *arena, size_t n_bytes, struct dcpk_error *err)
{
    return take(arena, n_bytes, ALIGNMENT, err);
}

void *dcpk_arena_array(struct dcpk_arena *arena, size_t n_items, size_t item_bytes,
                       struct dcpk_error *err)
{
    size_t n_bytes;

    if (__builtin_mul_overflow(n_items, item_bytes, &n_bytes)) {
        dcpk_fail(err, DCPK_ERANGE, "%zu items of %zu bytes pass the size of memory", n_items,
                  item_bytes);
        return NULL;
    }
    return take(arena, n_bytes, ALIGNMENT, err);
}

char *dcpk_arena_strndup(struct dcpk_arena *arena, const char *text, size_t n,
                         struct dcpk_error *err)
{
    char *copy;

    if (n == SIZE_MAX) {
        dcpk_fail(err, DCPK_ERANGE, "text of %zu bytes passes the size of memory", n);
        return NULL;
    }
    copy = take(arena, n + 1, 1, err);
    if (copy == NULL)
        return NULL;
    if (n > 0)
        memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

char *dcpk_arena_strdup(struct dcpk_arena *arena, const char *text, struct dcpk_error *err)
{
    return dcpk_arena_strndup(arena, text, strlen(text), err);
}

char *dcpk_arena_printf(struct dcpk_arena *arena, struct dcpk_error *err, const char *fmt, ...)
{
    char first[256]; /* most texts fit: they are formatted once */
    va_list args;
    char *text = NULL;
    int n;

    va_start(args, fmt);
    n = vsnprintf(first, sizeof first, fmt, args);
    va_end(args);
    if (n < 0) {
        dcpk_fail(err, DCPK_ERANGE, "text passes %d bytes", INT32_MAX);
        return NULL;
    }
    text = take(arena, (size_t)n + 1, 1, err);
    if (text == NULL)
        return NULL;
    if ((size_t)n < sizeof first)
        return memcpy(text, first, (size_t)n + 1);
    va_start(args, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, args);
    va_end(args);
    return text;
}

uint64_t dcpk_arena_used_bytes(const struct dcpk_arena *arena)
{
    return arena->used_bytes;
}
