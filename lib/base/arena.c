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
    bool is_own; /* of one large request */
    _Alignas(ALIGNMENT) uint8_t data[];
};

/* Invariant: memory of the first block past used_bytes is zero and was never handed out. */
struct dcpk_arena {
    struct block *blocks; /* the newest first; only that one is filled further */
    struct block *spare;  /* of before dcpk_arena_clear: all zero */
    size_t next_block_bytes;
    uint64_t used_bytes;
};

/* Stands for all arenas that there was no memory for. */
static struct dcpk_arena failed;

struct dcpk_arena *dcpk_arena_new(void)
{
    struct dcpk_arena *arena = dcpk_alloc_uncounted(sizeof *arena);

    if (arena == NULL)
        return &failed;
    arena->next_block_bytes = FIRST_BLOCK_BYTES;
    return arena;
}

static void free_blocks(struct block *block)
{
    while (block != NULL) {
        struct block *next = block->next;

        dcpk_free(block);
        block = next;
    }
}

void dcpk_arena_free(struct dcpk_arena *arena)
{
    if (arena == NULL || arena == &failed)
        return;
    free_blocks(arena->blocks);
    free_blocks(arena->spare);
    dcpk_free(arena);
}

void dcpk_arena_clear(struct dcpk_arena *arena, size_t keep_bytes)
{
    size_t kept_bytes = 0;

    if (arena == &failed)
        return;
    while (arena->blocks != NULL) {
        struct block *block = arena->blocks;

        arena->blocks = block->next;
        if (block->is_own || block->n_bytes > keep_bytes - kept_bytes) {
            dcpk_free(block);
            continue;
        }
        kept_bytes += block->n_bytes;
        memset(block->data, 0, block->used_bytes);
        block->used_bytes = 0;
        block->next = arena->spare;
        arena->spare = block;
    }
    arena->used_bytes = 0;
}

/* A spare block with room for n_bytes becomes the first; smaller ones on the way are released. */
static bool take_spare(struct dcpk_arena *arena, size_t n_bytes)
{
    while (arena->spare != NULL) {
        struct block *block = arena->spare;

        arena->spare = block->next;
        if (block->n_bytes >= n_bytes) {
            block->next = arena->blocks;
            arena->blocks = block;
            return true;
        }
        dcpk_free(block);
    }
    return false;
}

/*
 * A block with room for n_bytes. A large request gets a block of its own after the first, which
 * stays in use: its rest is not lost.
 */
static struct block *add_block(struct dcpk_arena *arena, size_t n_bytes, struct dcpk_error *err)
{
    const bool own = n_bytes > arena->next_block_bytes / 4;
    const size_t room = own ? n_bytes : arena->next_block_bytes;
    struct block *block;

    if (!own && take_spare(arena, n_bytes))
        return arena->blocks;
    if (arena == &failed || room > SIZE_MAX - sizeof *block) {
        dcpk_fail(err, DCPK_ENOMEM, "out of memory: %zu bytes asked", n_bytes);
        return NULL;
    }
    block = dcpk_alloc(sizeof *block + room, err);
    if (block == NULL)
        return NULL;
    block->n_bytes = room;
    block->is_own = own;
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

static void *arena_take(struct dcpk_arena *arena, size_t n_bytes, size_t alignment,
                        struct dcpk_error *err)
{
    struct block *block = arena->blocks;
    size_t pad = 0;
    void *memory;

    if (block != NULL)
        pad = -block->used_bytes & (alignment - 1); /* a power of two */
    if (block == NULL || block->n_bytes - block->used_bytes < pad ||
        block->n_bytes - block->used_bytes - pad < n_bytes) {
        block = add_block(arena, n_bytes, err);
        pad = 0;
    }
    if (block == NULL)
        return NULL;
    memory = block->data + block->used_bytes + pad;
    block->used_bytes += pad + n_bytes;
    arena->used_bytes += pad + n_bytes;
    return memory;
}

void *dcpk_arena_alloc(struct dcpk_arena *arena, size_t n_bytes, struct dcpk_error *err)
{
    return arena_take(arena, n_bytes, ALIGNMENT, err);
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
    return arena_take(arena, n_bytes, ALIGNMENT, err);
}

void *dcpk_arena_extend(struct dcpk_arena *arena, const void *items, size_t n_items, size_t n_room,
                        size_t item_bytes, struct dcpk_error *err)
{
    void *copy = dcpk_arena_array(arena, n_room, item_bytes, err);

    if (copy != NULL && n_items > 0)
        memcpy(copy, items, n_items * item_bytes);
    return copy;
}

void *dcpk_arena_copy(struct dcpk_arena *arena, const void *items, size_t n_items,
                      size_t item_bytes, struct dcpk_error *err)
{
    return dcpk_arena_extend(arena, items, n_items, n_items, item_bytes, err);
}

char *dcpk_arena_strndup(struct dcpk_arena *arena, const char *text, size_t n,
                         struct dcpk_error *err)
{
    char *copy;

    if (n == SIZE_MAX) {
        dcpk_fail(err, DCPK_ERANGE, "text of %zu bytes passes the size of memory", n);
        return NULL;
    }
    copy = arena_take(arena, n + 1, 1, err);
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

char *dcpk_arena_join(struct dcpk_arena *arena, const char *const *parts, size_t n_parts,
                      struct dcpk_error *err)
{
    size_t n_bytes = 1;
    char *text, *at;

    for (size_t i = 0; i < n_parts; i++) /* texts that are in memory: the sum cannot wrap */
        n_bytes += strlen(parts[i]);
    text = at = arena_take(arena, n_bytes, 1, err);
    if (text == NULL)
        return NULL;
    for (size_t i = 0; i < n_parts; i++)
        at = stpcpy(at, parts[i]);
    *at = '\0';
    return text;
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
    text = arena_take(arena, (size_t)n + 1, 1, err);
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
