/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_read.c - reads a pickle in two passes: one finds the memo entries that are used again, one
 * makes values. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/torch/pickle_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"

/* ---- the memo ---- */

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

/* max_entries: numbers from there on are refused. Allocates nothing. */
static void memo_init(struct dcpk_memo *memo, uint64_t max_entries, uint64_t n_bytes)
{
    *memo = (struct dcpk_memo){.max_entries = max_entries, .max_number = n_bytes + MEMO_SLACK};
}

static void memo_release(struct dcpk_memo *memo)
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

/* Takes room for the values of all that was asked for. Errors: DCPK_ENOMEM. */
static dcpk_status memo_settle(struct dcpk_memo *memo, struct dcpk_error *err)
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

/* ---- the input ---- */

/* ---- the bytes ---- */

#define WINDOW_BYTES ((size_t)256 * 1024) /* larger when one text or number is */

static void input_from_memory(struct dcpk_pickle_input *in, const void *data, size_t n_bytes,
                              uint64_t base_bytes)
{
    *in = (struct dcpk_pickle_input){.n_bytes = n_bytes, .base_bytes = base_bytes};
    dcpk_cursor_init(&in->cursor, data, n_bytes, base_bytes);
}

static void input_from_source(struct dcpk_pickle_input *in, struct dcpk_source *source,
                              uint64_t base_bytes)
{
    *in = (struct dcpk_pickle_input){
        .source = source, .n_bytes = dcpk_source_bytes(source), .base_bytes = base_bytes};
    dcpk_cursor_init(&in->cursor, NULL, 0, base_bytes);
}

static void input_release(struct dcpk_pickle_input *in)
{
    dcpk_free(in->window);
}

static void input_rewind(struct dcpk_pickle_input *in)
{
    if (in->source != NULL)
        dcpk_cursor_init(&in->cursor, NULL, 0, in->base_bytes);
    in->cursor.at_bytes = 0;
}

dcpk_status dcpk_pickle_input_fill(struct dcpk_pickle_input *in, size_t n, struct dcpk_error *err)
{
    struct dcpk_cursor *c = &in->cursor;
    const uint64_t at = dcpk_pickle_input_at(in), left = in->n_bytes - at;
    const size_t kept = c->n_bytes - c->at_bytes;
    size_t room = dcpk_max_size(n, WINDOW_BYTES);

    if (kept >= n || kept == left)
        return DCPK_OK;
    if (room > left)
        room = (size_t)left;
    if (room > in->window_bytes) {
        uint8_t *window = dcpk_alloc(room, err);

        if (window == NULL)
            return err->status;
        memcpy(window, c->data + c->at_bytes, kept);
        dcpk_free(in->window);
        in->window = window;
        in->window_bytes = room;
    } else {
        memmove(in->window, c->data + c->at_bytes, kept);
    }
    if (dcpk_source_read(in->source, at + kept, in->window + kept, room - kept, err))
        return err->status;
    dcpk_cursor_init(c, in->window, room, in->base_bytes + at);
    return DCPK_OK;
}

/* ---- passes ---- */

/* At STOP: one value, nothing open, nothing after. */
static dcpk_status stop(struct dcpk_pickle_machine *m, struct dcpk_error *err)
{
    if (m->n_stack != 1 || m->n_marks != 0)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "STOP with %zu values and %zu marks on the stack, not one value",
                         m->n_stack, m->n_marks);
    if (dcpk_pickle_input_left(&m->in) != 0)
        return dcpk_fail(err, DCPK_EFORMAT, "%" PRIu64 " bytes after STOP",
                         dcpk_pickle_input_left(&m->in));
    return dcpk_builder_check(&m->build, m->stack[0], err);
}

static inline dcpk_status next_opcode(struct dcpk_pickle_machine *m, uint8_t *opcode,
                                      struct dcpk_error *err)
{
    struct dcpk_cursor *c = &m->in.cursor;

    if (c->n_bytes - c->at_bytes < DCPK_PICKLE_STEP_BYTES &&
        dcpk_pickle_input_fill(&m->in, DCPK_PICKLE_STEP_BYTES, err) != DCPK_OK)
        return err->status;
    m->build.at_bytes = (uint32_t)dcpk_pickle_input_at(&m->in);
    if (c->at_bytes == c->n_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "pickle ends at byte %" PRIu64 " without STOP (is it cut?)",
                         c->base_bytes + c->n_bytes);
    *opcode = c->data[c->at_bytes++];
    return DCPK_OK;
}

/* The numbers that the pickle gets from its memo, up to its end or to where it cannot be read. */
static dcpk_status skim(struct dcpk_pickle_machine *m, struct dcpk_error *err)
{
    uint8_t opcode = 0;

    while (opcode != DCPK_OP_STOP)
        if (dcpk_pickle_skip_plain(m, err) || next_opcode(m, &opcode, err) ||
            dcpk_pickle_skip(m, opcode, err))
            return err->status;
    return DCPK_OK;
}

/* The first pass: which memo entries are asked for. It ends at STOP, or at a fault that the second
 * pass meets again and reports. */
static dcpk_status find_gets(struct dcpk_pickle_machine *m, struct dcpk_error *err)
{
    if (skim(m, err) && err->status != DCPK_EFORMAT)
        return err->status;
    dcpk_error_clear(err);
    input_rewind(&m->in);
    return memo_settle(&m->memo, err);
}

static dcpk_status collect(struct dcpk_pickle_machine *m, struct dcpk_error *err)
{
    const struct dcpk_roots roots[] = {
        {.values = m->stack, .n = m->n_stack},
        {.values = m->memo.values, .n = m->memo.n_moving, .which = m->memo.moving}};

    return dcpk_builder_collect(&m->build, roots, 2, err);
}

static dcpk_status name_opcode(const struct dcpk_pickle_machine *m, uint8_t opcode,
                               struct dcpk_error *err)
{
    return dcpk_context(err, "pickle opcode 0x%02x at byte %" PRIu64, opcode,
                        m->in.base_bytes + m->build.at_bytes);
}

static dcpk_status run(struct dcpk_pickle_machine *m, struct dcpk_error *err)
{
    uint8_t opcode = 0;

    for (;;) {
        if (dcpk_builder_is_full(&m->build) && collect(m, err))
            return name_opcode(m, opcode, err);
        if (next_opcode(m, &opcode, err))
            return err->status;
        if (opcode == DCPK_OP_STOP)
            break;
        if (dcpk_pickle_step(m, opcode, err))
            return name_opcode(m, opcode, err);
    }
    if (stop(m, err))
        return name_opcode(m, opcode, err);
    return DCPK_OK;
}

static struct dcpk_pickle_name name_of(const struct dcpk_global_node *g)
{
    if (g == NULL)
        return (struct dcpk_pickle_name){NULL, NULL};
    return (struct dcpk_pickle_name){g->v.as.global.module, g->v.as.global.name};
}

static dcpk_status read_input(struct dcpk_pickle_machine *m, struct dcpk_arena *arena,
                              const struct dcpk_value **value, struct dcpk_error *err)
{
    const uint64_t n_bytes = m->in.n_bytes, max_memo = m->options->limits.max_memo;
    struct dcpk_roots root = {.n = 1};

    memo_init(&m->memo, max_memo == 0 ? n_bytes : max_memo, n_bytes);
    dcpk_builder_init(&m->build, arena, m->options, (size_t)n_bytes);
    if (find_gets(m, err) || dcpk_grow(&m->stack, &m->stack_capacity, 0, sizeof *m->stack, err) ||
        run(m, err))
        goto out;
    root.values = m->stack;
    if (m->build.arena != arena && dcpk_builder_move(&m->build, arena, &root, 1, err))
        goto out;
    *value = m->stack[0];
    if (m->options->unknown != NULL)
        *m->options->unknown = name_of(m->build.unknown);
out:
    dcpk_builder_release(&m->build);
    memo_release(&m->memo);
    input_release(&m->in);
    dcpk_free(m->stack);
    dcpk_free(m->marks);
    return err->status;
}

static const struct dcpk_pickle_options defaults = {0};

static dcpk_status pickle_check_bytes(uint64_t n_bytes, struct dcpk_error *err)
{
    if (n_bytes <= UINT32_MAX)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_ERANGE, "pickle of %" PRIu64 " bytes, at most %" PRIu32 " are read",
                     n_bytes, UINT32_MAX);
}

dcpk_status dcpk_pickle_read(const void *data, size_t n_bytes,
                             const struct dcpk_pickle_options *options, struct dcpk_arena *arena,
                             const struct dcpk_value **value, struct dcpk_error *err)
{
    struct dcpk_pickle_machine m = {.options = options != NULL ? options : &defaults};

    if (pickle_check_bytes(n_bytes, err) != DCPK_OK)
        return err->status;
    input_from_memory(&m.in, data, n_bytes, m.options->base_bytes);
    return read_input(&m, arena, value, err);
}

dcpk_status dcpk_pickle_read_source(struct dcpk_source *source,
                                    const struct dcpk_pickle_options *options,
                                    struct dcpk_arena *arena, const struct dcpk_value **value,
                                    struct dcpk_error *err)
{
    struct dcpk_pickle_machine m = {.options = options != NULL ? options : &defaults};

    if (pickle_check_bytes(dcpk_source_bytes(source), err) != DCPK_OK)
        return err->status;
    input_from_source(&m.in, source, m.options->base_bytes);
    return read_input(&m, arena, value, err);
}

bool dcpk_pickle_is_kept(const struct dcpk_value *text)
{
    return text->kind == DCPK_V_STR && ((const struct dcpk_text_node *)text)->is_kept;
}

uint32_t dcpk_pickle_number(const struct dcpk_value *text)
{
    return ((const struct dcpk_text_node *)text)->number;
}

void dcpk_pickle_set_number(const struct dcpk_value *text, uint32_t number)
{
    assert(dcpk_pickle_is_kept(text));
    ((struct dcpk_text_node *)dcpk_node_mutable(text))->number = number;
}

uint32_t dcpk_pickle_run(const struct dcpk_value *v)
{
    if (v == NULL || (v->kind != DCPK_V_LIST && v->kind != DCPK_V_DICT) || dcpk_node_is_foreign(v))
        return 0;
    return dcpk_node_of(v)->run;
}
