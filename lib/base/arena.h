/* SPDX-License-Identifier: Apache-2.0 */
/* arena.h - memory that lives and dies together: names, shapes, values of one checkpoint. */
#ifndef DCPK_LIB_BASE_ARENA_H
#define DCPK_LIB_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

struct dcpk_arena;

/* Never NULL: without memory for it, each request fails. */
struct dcpk_arena *dcpk_arena_new(void);

/* Release everything that came from the arena. NULL is a no-op. */
void dcpk_arena_free(struct dcpk_arena *arena);

/* Release what came from the arena, but keep at most keep_bytes of its memory for what comes next.
 * Then it is as new. */
void dcpk_arena_clear(struct dcpk_arena *arena, size_t keep_bytes);

/* n_bytes of zeroed memory, aligned to 8, valid until dcpk_arena_free; NULL with err set on
 * failure. Not thread-safe. */
void *dcpk_arena_alloc(struct dcpk_arena *arena, size_t n_bytes, struct dcpk_error *err);

/* As dcpk_arena_alloc for n_items of item_bytes; an overflowing product is DCPK_ERANGE. */
void *dcpk_arena_array(struct dcpk_arena *arena, size_t n_items, size_t item_bytes,
                       struct dcpk_error *err);
/* An array of n_room items that begins with a copy of n_items; `items` may be NULL when there are
 * none. Errors: the same. */
void *dcpk_arena_extend(struct dcpk_arena *arena, const void *items, size_t n_items, size_t n_room,
                        size_t item_bytes, struct dcpk_error *err);
/* A copy of n_items. */
void *dcpk_arena_copy(struct dcpk_arena *arena, const void *items, size_t n_items,
                      size_t item_bytes, struct dcpk_error *err);

/* A copy of n bytes of text with a NUL after it. The copy is not aligned. */
char *dcpk_arena_strndup(struct dcpk_arena *arena, const char *text, size_t n,
                         struct dcpk_error *err);
char *dcpk_arena_strdup(struct dcpk_arena *arena, const char *text, struct dcpk_error *err);
/* The parts one after the other: what printf of "%s%s..." gives, in a tenth of the time. */
char *dcpk_arena_join(struct dcpk_arena *arena, const char *const *parts, size_t n_parts,
                      struct dcpk_error *err);
char *dcpk_arena_printf(struct dcpk_arena *arena, struct dcpk_error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Bytes handed out so far, rounding included. */
uint64_t dcpk_arena_used_bytes(const struct dcpk_arena *arena);

#endif
