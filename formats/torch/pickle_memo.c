/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_memo.c - the memo of a pickle: the values that a GET asks for, and no others. */
#include <inttypes.h>
#include <string.h>

#include "formats/torch/pickle_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"

/*
 * CPython memoizes nearly every value and asks for few of them again: a set of the numbers that are
 * asked for, taken from a first pass over the opcodes, decides which to keep. Entry i of `values`
 * is the i-th of these numbers; n_before finds i without a table of all numbers.
 */
#define MEMO_SLACK 256 /* a memo number may pass the opcode's own position by this much */
#define WORD_BITS  64

static bool has_bit(const struct dcpk_bits *bits, uint64_t i)
{
    return i / WORD_BITS < bits->n_words && (bits->words[i / WORD_BITS] >> i % WORD_BITS & 1) != 0;
}

/* Bits that are set: without a processor's own instruction the compiler calls a library. */
static unsigned count_bits(uint64_t x)
{
    x -= x >> 1 & UINT64_C(0x5555555555555555);
    x = (x & UINT64_C(0x3333333333333333)) + (x >> 2 & UINT64_C(0x3333333333333333));
    x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (unsigned)(x * UINT64_C(0x0101010101010101) >> 56);
}

static dcpk_status set_bit(struct dcpk_bits *bits, uint64_t i, struct dcpk_error *err)
{
    const size_t need = (size_t)(i / WORD_BITS) + 1;
    const size_t n = dcpk_max_size(need, 2 * bits->n_words);
    uint64_t *words;

    if (need > bits->n_words) {
        words = dcpk_realloc(bits->words, n * sizeof *words, err);
        if (words == NULL)
            return err->status;
        memset(words + bits->n_words, 0, (n - bits->n_words) * sizeof *words);
        bits->words = words;
        bits->n_words = n;
    }
    bits->words[i / WORD_BITS] |= (uint64_t)1 << i % WORD_BITS;
    return DCPK_OK;
}

void dcpk_memo_init(struct dcpk_memo *memo, uint64_t max_entries, uint64_t n_bytes)
{
    *memo = (struct dcpk_memo){.max_entries = max_entries, .max_number = n_bytes + MEMO_SLACK};
}

void dcpk_memo_release(struct dcpk_memo *memo)
{
    dcpk_free(memo->asked.words);
    dcpk_free(memo->set.words);
    dcpk_free(memo->n_before);
    dcpk_free(memo->values);
    dcpk_free(memo->moving);
    dcpk_free(memo->is_moving.words);
}

dcpk_status dcpk_memo_ask(struct dcpk_memo *memo, uint64_t number, struct dcpk_error *err)
{
    if (number >= memo->max_number)
        return DCPK_OK;
    return set_bit(&memo->asked, number, err);
}

bool dcpk_memo_is_asked(const struct dcpk_memo *memo, uint64_t number)
{
    return has_bit(&memo->asked, number);
}

dcpk_status dcpk_memo_settle(struct dcpk_memo *memo, struct dcpk_error *err)
{
    memo->n_before = dcpk_alloc_array(memo->asked.n_words, sizeof *memo->n_before, err);
    if (memo->n_before == NULL)
        return err->status;
    for (size_t i = 0; i < memo->asked.n_words; i++) {
        memo->n_before[i] = (uint32_t)memo->n_values;
        memo->n_values += count_bits(memo->asked.words[i]);
    }
    memo->values = dcpk_alloc_array(memo->n_values, sizeof(struct dcpk_value *), err);
    return dcpk_made(memo->values, err);
}

/* The entry of a number, or NULL: no opcode asks for it. */
static struct dcpk_value **entry(const struct dcpk_memo *memo, uint64_t number)
{
    const size_t word = (size_t)(number / WORD_BITS);

    if (!has_bit(&memo->asked, number))
        return NULL;
    return &memo->values[memo->n_before[word] +
                         count_bits(memo->asked.words[word] &
                                    (((uint64_t)1 << number % WORD_BITS) - 1))];
}

static dcpk_status note_moving(struct dcpk_memo *memo, uint64_t number,
                               struct dcpk_value *const *kept, struct dcpk_error *err)
{
    if (has_bit(&memo->is_moving, number))
        return DCPK_OK;
    if (dcpk_grow(&memo->moving, &memo->moving_capacity, memo->n_moving, sizeof *memo->moving,
                  err) != DCPK_OK)
        return err->status;
    memo->moving[memo->n_moving++] = (uint32_t)(kept - memo->values);
    return set_bit(&memo->is_moving, number, err);
}

/*
 * Numbers in use are dense and each takes at least one byte of pickle, so one far past the opcode's
 * own position only asks for memory.
 */
dcpk_status dcpk_memo_put(struct dcpk_memo *memo, uint64_t number, uint64_t at_bytes,
                          struct dcpk_value *v, struct dcpk_error *err)
{
    const uint64_t here = at_bytes + MEMO_SLACK;
    struct dcpk_value **kept = entry(memo, number);

    if (number >= here || number >= memo->max_entries)
        return dcpk_fail(err, DCPK_ERANGE, "memo number %" PRIu64 " passes the limit of %" PRIu64,
                         number, dcpk_min_u64(memo->max_entries, here));
    if (!has_bit(&memo->set, number))
        memo->n_set++;
    if (kept != NULL)
        *kept = v;
    if (kept != NULL && !dcpk_node_is_fixed(v) && note_moving(memo, number, kept, err) != DCPK_OK)
        return err->status;
    return set_bit(&memo->set, number, err);
}

dcpk_status dcpk_memo_get(const struct dcpk_memo *memo, uint64_t number, struct dcpk_value **v,
                          struct dcpk_error *err)
{
    struct dcpk_value **kept = entry(memo, number);

    if (kept == NULL || *kept == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "memo number %" PRIu64 " was never set", number);
    *v = *kept;
    return DCPK_OK;
}
