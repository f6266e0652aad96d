/* SPDX-License-Identifier: Apache-2.0 */
/* test_moved_prop.c - random buffers with padding, saved as core 0.15 to 0.19.2 save them, by the
 * element: every element is where megatron_segments.h finds it, and a lost one is nowhere. */
#include <stdio.h>
#include <string.h>

#include "formats/megatron/buckets/megatron_segments.h"
#include "tests/check.h"
#include "tests/random.h"

#define MAX_SLOTS   12
#define MAX_BUCKETS 12
#define MAX_ELEMS   4096
#define TP          2

/* A layout of one buffer on each of TP ranks: the same slots, of which some are not cut. */
struct random_layout {
    struct dcpk_blocks cut, whole;
    struct dcpk_replay_slot slots[MAX_SLOTS];
    struct dcpk_laid_bucket buckets[TP * MAX_BUCKETS];
    struct dcpk_bucket_part parts[TP * MAX_SLOTS];
    struct dcpk_bucket_layout layout;
};

static int64_t draw(uint64_t *seed, int64_t n)
{
    return (int64_t)random_below(seed, (uint64_t)n);
}

static void close_bucket(struct random_layout *l, struct dcpk_laid_bucket *next, uint64_t *seed)
{
    next->n_padded_elems = next->n_elems + draw(seed, 3) * draw(seed, 9);
    l->layout.buckets[l->layout.n++] = *next;
    next->number++;
    next->n_elems = 0;
    next->first_part = l->layout.n_parts;
    next->n_parts = 0;
}

static void draw_layout(struct random_layout *l, uint64_t seed)
{
    const uint64_t of_buckets = seed * 77 + 5;
    const size_t n_slots = (size_t)draw(&seed, MAX_SLOTS) + 1;

    memset(l, 0, sizeof *l);
    l->cut = (struct dcpk_blocks){.axis = 0, .n_ranks = TP, .n_parts = 1};
    l->whole = (struct dcpk_blocks){.axis = -1, .n_ranks = 1, .n_parts = 1};
    l->layout.replay.slots = l->slots;
    l->layout.replay.n_slots = n_slots;
    l->layout.buckets = l->buckets;
    l->layout.parts = l->parts;
    for (size_t s = 0; s < n_slots; s++)
        l->slots[s] = (struct dcpk_replay_slot){.blocks = draw(&seed, 3) == 0 ? &l->whole : &l->cut,
                                                .n_elems = draw(&seed, 40) + 1,
                                                .is_copy = draw(&seed, 8) == 0};
    for (int64_t t = 0; t < TP; t++) {
        uint64_t same = of_buckets; /* ranks have the same buckets */
        struct dcpk_laid_bucket next = {.group = t, .tp_rank = t, .first_part = l->layout.n_parts};

        for (size_t s = n_slots; s-- > 0;) {
            next.n_elems += draw(&same, 3); /* a gap in front of it */
            l->parts[l->layout.n_parts++] =
                (struct dcpk_bucket_part){s, next.n_elems, l->slots[s].n_elems};
            next.n_parts++;
            next.n_elems += l->slots[s].n_elems;
            if (draw(&same, 3) == 0 || s == 0)
                close_bucket(l, &next, &same);
        }
    }
}

/* What Megatron makes of one rank's buffer: an element is (part + 1) * MAX_ELEMS + its number. */
struct saved {
    int64_t w[MAX_ELEMS];               /* the buffer without padding; 0: a gap */
    int64_t part_at[TP * MAX_SLOTS];    /* where a part begins in it */
    int64_t stored[TP * MAX_SLOTS][64]; /* W[start : end] of each part */
};

static void save(const struct dcpk_bucket_layout *l, struct saved *saved)
{
    for (int64_t t = 0; t < TP; t++) {
        int64_t at = 0, padded = 0;

        memset(saved->w, 0, sizeof saved->w);
        for (size_t b = 0; b < l->n; b++) {
            if (l->buckets[b].tp_rank != t)
                continue;
            for (size_t p = l->buckets[b].first_part;
                 p < l->buckets[b].first_part + l->buckets[b].n_parts; p++) {
                saved->part_at[p] = at + l->parts[p].first;
                for (int64_t i = 0; i < l->parts[p].n_elems; i++)
                    saved->w[saved->part_at[p] + i] = ((int64_t)p + 1) * MAX_ELEMS + i;
            }
            at += l->buckets[b].n_elems;
        }
        for (size_t b = 0; b < l->n; b++) {
            if (l->buckets[b].tp_rank != t)
                continue;
            for (size_t p = l->buckets[b].first_part;
                 p < l->buckets[b].first_part + l->buckets[b].n_parts; p++)
                for (int64_t i = 0; i < l->parts[p].n_elems; i++) {
                    const int64_t from = padded + l->parts[p].first + i;

                    saved->stored[p][i] = from < at ? saved->w[from] : 0;
                }
            padded += l->buckets[b].n_padded_elems;
        }
    }
}

/* Is the element stored as one of the ranges that this rank writes? */
static bool is_somewhere(const struct dcpk_bucket_layout *l, const struct saved *saved, int64_t t,
                         int64_t element)
{
    for (size_t b = 0; b < l->n; b++)
        for (size_t p = l->buckets[b].first_part;
             p < l->buckets[b].first_part + l->buckets[b].n_parts; p++) {
            const struct dcpk_replay_slot *slot = &l->replay.slots[l->parts[p].slot];

            if (l->buckets[b].tp_rank != t || slot->is_copy || t >= slot->blocks->n_ranks)
                continue;
            for (int64_t i = 0; i < l->parts[p].n_elems; i++)
                if (saved->stored[p][i] == element)
                    return true;
        }
    return false;
}

/* The runs of a part hold each of its elements once, in order, where they are. */
static void check_part(const struct dcpk_bucket_layout *l, const struct saved *saved,
                       const struct dcpk_moved *moved, const struct dcpk_laid_bucket *bucket,
                       size_t p, const char *label)
{
    const struct dcpk_replay_slot *slot = &l->replay.slots[l->parts[p].slot];
    int64_t at = 0;

    if (slot->is_copy || bucket->tp_rank >= slot->blocks->n_ranks) {
        CHECK_EQ_INT(moved->first_run[p], moved->first_run[p + 1], label);
        return;
    }
    for (size_t r = moved->first_run[p]; r < moved->first_run[p + 1]; r++) {
        const struct dcpk_moved_run *run = &moved->runs[r];

        CHECK_EQ_INT(run->at, at, label);
        CHECK(run->n > 0, label);
        for (int64_t i = 0; i < run->n; i++) {
            const int64_t element = ((int64_t)p + 1) * MAX_ELEMS + at + i;

            if (run->from != DCPK_MOVED_LOST)
                CHECK_EQ_INT(saved->stored[run->from][run->first + i], element, label);
            if (run->from == DCPK_MOVED_LOST || run->is_of_rank_0)
                CHECK(!is_somewhere(l, saved, bucket->tp_rank, element), label);
        }
        at += run->n;
    }
    CHECK_EQ_INT(at, l->parts[p].n_elems, label);
}

static void elements_are_where_they_are_found(void **state)
{
    static struct random_layout l;
    static struct saved saved;
    size_t n_lost = 0, n_of_rank_0 = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_moved moved;
        char label[32];

        snprintf(label, sizeof label, "seed %llu", (unsigned long long)seed);
        draw_layout(&l, seed);
        save(&l.layout, &saved);
        CHECK_OK(dcpk_moved_find(&l.layout, arena, &moved, &err), label);
        for (size_t b = 0; b < l.layout.n; b++)
            for (size_t p = l.buckets[b].first_part;
                 p < l.buckets[b].first_part + l.buckets[b].n_parts; p++)
                check_part(&l.layout, &saved, &moved, &l.buckets[b], p, label);
        for (size_t r = 0; r < moved.n_runs; r++) {
            n_lost += moved.runs[r].from == DCPK_MOVED_LOST;
            n_of_rank_0 += moved.runs[r].is_of_rank_0;
        }
        dcpk_arena_free(arena);
    }
    CHECK(n_lost > 0 && n_of_rank_0 > 0, "cases of each kind were drawn");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_where_they_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
