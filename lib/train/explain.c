/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - tables of memory and traffic, the layout and the micro batch that fit. */
#include "lib/train/explain.h"

#include <inttypes.h>
#include <stdio.h>

#include "lib/base/order.h"
#include "lib/report/plain.h"
#include "lib/train/fits.h"

/* Columns of both tables: what is measured, then each strategy. */
#define WHAT_COLUMNS   8
#define FIGURE_COLUMNS 13 /* "optim_grads *"; figures are shorter, "1023.99 KiB" */
#define LAST_COLUMNS   20 /* "optim_grads_params *" */

/* Columns of figures: Megatron's by strategy, then this run's. */
#define THIS_RUN  DCPK_N_STRATEGIES
#define N_COLUMNS (DCPK_N_STRATEGIES + 1)

/* The footprint that a column shows. */
static enum dcpk_footprint_of column_of(int column)
{
    return column == THIS_RUN ? DCPK_OF_THIS_RUN : DCPK_OF_MEGATRON;
}

/* ---- tables ---- */

/* A row of a table: a value of each column. */
struct figure {
    const char *key, *title;
    struct dcpk_fact of[N_COLUMNS]; /* absent: not asked for */
};

#define MAX_FIGURES (DCPK_N_TAGS + 1)
struct figures {
    struct figure list[MAX_FIGURES];
    size_t n;
    enum dcpk_strategy chosen;
};

/* One line of a table in text. */
static void put_figures(struct dcpk_doc_rows *rows, const char *what,
                        const struct dcpk_fact figures[N_COLUMNS])
{
    struct dcpk_doc_cell cells[1 + N_COLUMNS] = {
        {.title = "what", .fact = dcpk_fact_text(what), .width = WHAT_COLUMNS}};

    for (int i = 0; i < N_COLUMNS; i++)
        cells[1 + i] = (struct dcpk_doc_cell){.title = "figure",
                                              .fact = figures[i],
                                              .flags = DCPK_DOC_RIGHT,
                                              .width = FIGURE_COLUMNS};
    cells[DCPK_N_STRATEGIES].width = LAST_COLUMNS;
    dcpk_doc_put(rows, cells, DCPK_COUNT(cells));
}

/* For persons: names of strategies, with a star after the one that is asked for, then figures. */
static void fill_lines(const void *context, struct dcpk_doc_rows *rows)
{
    const struct figures *all = context;
    char names[DCPK_N_STRATEGIES][LAST_COLUMNS + 1];
    struct dcpk_fact facts[N_COLUMNS] = {[THIS_RUN] = dcpk_fact_text("this run")};

    for (int i = 0; i < DCPK_N_STRATEGIES; i++) {
        const char *mark = all->chosen == (enum dcpk_strategy)i ? " *" : "";

        snprintf(names[i], sizeof names[i], "%s%s", dcpk_strategy_names[i], mark);
        facts[i] = dcpk_fact_text(names[i]);
    }
    put_figures(rows, "", facts);
    for (size_t f = 0; f < all->n; f++)
        if (all->list[f].of[0].kind != DCPK_FACT_NULL)
            put_figures(rows, all->list[f].title, all->list[f].of);
}

/* For programs: a row a strategy. */
static void fill_strategies(const void *context, struct dcpk_doc_rows *rows)
{
    const struct figures *all = context;

    for (size_t i = 0; i < DCPK_N_STRATEGIES; i++) {
        struct dcpk_doc_cell cells[1 + MAX_FIGURES] = {
            DCPK_MEMBER("strategy", dcpk_fact_text(dcpk_strategy_names[i]))};

        for (size_t f = 0; f < all->n; f++)
            cells[1 + f] = (struct dcpk_doc_cell)DCPK_MEMBER(all->list[f].key, all->list[f].of[i]);
        dcpk_doc_put(rows, cells, 1 + all->n);
    }
}

/* Both tables; this run's figures are members of the object `own`. */
static void put_tables(struct dcpk_doc *doc, const struct figures *all, const char *key,
                       const char *own)
{
    dcpk_doc_show(doc, &(struct dcpk_doc_table){.fill = fill_lines, .context = all});
    dcpk_doc_set_table(doc, key, &(struct dcpk_doc_table){.fill = fill_strategies, .context = all});
    for (size_t f = 0; f < all->n; f++)
        dcpk_doc_set(doc, dcpk_doc_format(doc, "%s.%s", own, all->list[f].key),
                     all->list[f].of[THIS_RUN]);
}

/* ---- memory ---- */

static const char *const held_keys[DCPK_N_TAGS] = {
    [DCPK_TAG_WEIGHTS] = "weights_bytes", [DCPK_TAG_MAIN] = "main_bytes",
    [DCPK_TAG_GRADS] = "grads_bytes",     [DCPK_TAG_ADAM] = "adam_bytes",
    [DCPK_TAG_GATHER] = "gather_bytes",   [DCPK_TAG_COMM] = "comm_bytes",
    [DCPK_TAG_ACT] = "act_bytes"};

static void memory_figures(struct figures *all, int column, const uint64_t held[DCPK_N_TAGS])
{
    all->n = DCPK_N_TAGS + 1;
    for (size_t tag = 0; tag < DCPK_N_TAGS; tag++) {
        all->list[tag].key = held_keys[tag];
        all->list[tag].title = dcpk_memory_tag_names[tag];
        all->list[tag].of[column] = dcpk_fact_bytes(held[tag]);
    }
    all->list[DCPK_N_TAGS].key = "all_bytes";
    all->list[DCPK_N_TAGS].title = "all";
    all->list[DCPK_N_TAGS].of[column] = dcpk_fact_bytes(dcpk_train_held_sum(held));
}

/* Advises changes that the configuration has not made yet. */
static void explain_advice(const struct dcpk_train_config *c, struct dcpk_doc *doc)
{
    dcpk_doc_heading(doc, "ways to lower it");
    if (c->fsdp.mode != DCPK_MODE_MEGATRON_FSDP)
        dcpk_doc_note(doc, "sharding",
                      "use_megatron_fsdp is off: it shards weights, gradients and optimizer state "
                      "over data-parallel ranks; checkpoints are then fsdp_dtensor");
    else if (c->fsdp.strategy != DCPK_OPTIM_GRADS_PARAMS)
        dcpk_doc_note(doc, "sharding",
                      "data_parallel_sharding_strategy optim_grads_params shards most");
    if (c->data.micro_batch > 1)
        dcpk_doc_note(doc, "batch", "a smaller micro_batch_size lowers activations");
    if (!c->fsdp.recomputes)
        dcpk_doc_note(doc, "activations",
                      "recompute_granularity full keeps only the inputs of layers; sharding does "
                      "not lower activations");
    if (c->fsdp.has_double_buffer)
        dcpk_doc_note(doc, "buffers", "fsdp_double_buffer keeps its two buffers all the time");
    if (c->fsdp.strategy == DCPK_OPTIM_GRADS_PARAMS && !c->fsdp.has_double_buffer)
        dcpk_doc_note(
            doc, "buffers",
            "fsdp_double_buffer keeps weights and gradients of two units in flight; without it, "
            "those of up to suggested_communication_unit_size (10^9) elements");
    dcpk_doc_note(doc, "layout",
                  "more tensor, pipeline or context parallelism makes each rank's part of the "
                  "model or the sample smaller");
}

/* Explains the part of this run, or of Megatron, that fits: facts under `key`, rows under
 * `label`. */
static dcpk_status explain_fit(const struct dcpk_train_config *c, enum dcpk_footprint_of of,
                               uint64_t limit_bytes, struct dcpk_doc *doc, struct dcpk_error *err)
{
    const char *key = of == DCPK_OF_MEGATRON ? "megatron." : "";
    const char *label = of == DCPK_OF_MEGATRON ? "Megatron: " : "this run: ";
    struct dcpk_grid l;
    int64_t micro_batch, n_ranks;
    uint64_t need;

    if (dcpk_train_need(c, of, &need, err) ||
        dcpk_train_largest_batch(c, of, limit_bytes, &micro_batch, err) ||
        dcpk_train_smallest_layout(c, of, limit_bytes, &l, err))
        return err->status;
    n_ranks = l.tp * l.cp * l.pp * l.dp;
    dcpk_doc_fact(doc, dcpk_doc_format(doc, "%sfits", label), dcpk_doc_format(doc, "%sfits", key),
                  dcpk_fact_flag(need <= limit_bytes));
    dcpk_doc_set(doc, dcpk_doc_format(doc, "%slargest_micro_batch", key),
                 dcpk_fact_int(micro_batch));
    dcpk_doc_row(doc, dcpk_doc_format(doc, "%smicro batch", label), "at most %" PRId64,
                 micro_batch);
    dcpk_doc_set(doc, dcpk_doc_format(doc, "%ssmallest_layout.tp", key), dcpk_fact_int(l.tp));
    dcpk_doc_set(doc, dcpk_doc_format(doc, "%ssmallest_layout.cp", key), dcpk_fact_int(l.cp));
    dcpk_doc_set(doc, dcpk_doc_format(doc, "%ssmallest_layout.pp", key), dcpk_fact_int(l.pp));
    dcpk_doc_set(doc, dcpk_doc_format(doc, "%ssmallest_layout.dp", key), dcpk_fact_int(l.dp));
    dcpk_doc_set(doc, dcpk_doc_format(doc, "%ssmallest_layout.n_ranks", key),
                 dcpk_fact_int(n_ranks));
    label = dcpk_doc_format(doc, "%slayout", label);
    if (l.tp == 0)
        dcpk_doc_row(doc, label, "none of up to %d ranks fits", DCPK_TRAIN_MAX_RANKS);
    else
        dcpk_doc_row(doc, label,
                     "at least %" PRId64 " ranks: tensor %" PRId64 ", context %" PRId64
                     ", pipeline %" PRId64 ", data %" PRId64,
                     n_ranks, l.tp, l.cp, l.pp, l.dp);
    if (need > limit_bytes && of == DCPK_OF_THIS_RUN)
        explain_advice(c, doc);
    return DCPK_OK;
}

/* The first strategy whose bytes fit on layouts of pp stages, of which Megatron-FSDP takes one;
 * DCPK_N_STRATEGIES: none does. */
static int first_that_fits(const uint64_t need[DCPK_N_STRATEGIES], int64_t pp, uint64_t limit_bytes)
{
    const int n = pp > 1 ? DCPK_OPTIM_GRADS : DCPK_N_STRATEGIES;

    for (int first = 0; first < n; first++)
        if (need[first] <= limit_bytes)
            return first;
    return DCPK_N_STRATEGIES;
}

/* Why the first strategy that fits is the one to take. */
static const char *choice_reason(const struct dcpk_train_config *config,
                                 const uint64_t need[DCPK_N_STRATEGIES], int first,
                                 const char *limit, struct dcpk_doc *doc)
{
    const int64_t n_shards = config->layout.dp * config->layout.cp / config->layout.instances;
    char size[DCPK_PLAIN_SIZE_BYTES], less[DCPK_PLAIN_SIZE_BYTES];
    const char *before = "the distributed optimizer";

    dcpk_plain_size(need[first], size);
    if (first == DCPK_NO_SHARD)
        return dcpk_doc_format(doc, "DDP fits, with %s of %s: nothing has to be sharded", size,
                               limit);
    dcpk_plain_size(need[first - 1], less);
    if (first == DCPK_OPTIM)
        return dcpk_doc_format(doc,
                               "the distributed optimizer is enough (use_distributed_optimizer): "
                               "DDP needs %s of %s; with optimizer state shared by %" PRId64
                               " data-parallel ranks it is %s",
                               less, limit, n_shards, size);
    if (first - 1 > DCPK_OPTIM)
        before = dcpk_strategy_names[first - 1];
    return dcpk_doc_format(doc,
                           "Megatron-FSDP is needed (use_megatron_fsdp, "
                           "data_parallel_sharding_strategy %s): %s needs %s of %s; on %" PRId64
                           " data-parallel ranks %s needs %s",
                           dcpk_strategy_names[first], before, less, limit, n_shards,
                           dcpk_strategy_names[first], size);
}

/* Names the fewest ranks that are enough for Megatron-FSDP, where no strategy fits on these. */
static dcpk_status explain_more_ranks(const struct dcpk_train_config *config,
                                      const uint64_t need[DCPK_N_STRATEGIES], uint64_t limit_bytes,
                                      const char **why, struct dcpk_doc *doc,
                                      struct dcpk_error *err)
{
    const bool has_stages = config->layout.pp > 1;
    struct dcpk_train_config c = dcpk_train_under(config, DCPK_OPTIM_GRADS_PARAMS);
    char size[DCPK_PLAIN_SIZE_BYTES], limit[DCPK_PLAIN_SIZE_BYTES];
    struct dcpk_grid l;

    c.layout.pp = 1;
    c.layout.first = c.layout.last = 0;
    if (dcpk_train_smallest_layout(&c, DCPK_OF_MEGATRON, limit_bytes, &l, err) != DCPK_OK)
        return err->status;
    dcpk_plain_size(limit_bytes, limit);
    if (has_stages)
        *why = dcpk_doc_format(doc,
                               "nothing fits in this layout: the distributed optimizer needs %s of "
                               "%s, and Megatron-FSDP has no pipeline stages",
                               dcpk_plain_size(need[DCPK_OPTIM], size), limit);
    else
        *why =
            dcpk_doc_format(doc, "nothing fits in this layout: optim_grads_params needs %s of %s",
                            dcpk_plain_size(need[DCPK_OPTIM_GRADS_PARAMS], size), limit);
    if (l.tp > 0)
        *why = dcpk_doc_format(doc,
                               "%s; Megatron-FSDP with optim_grads_params fits on %" PRId64
                               " ranks as tensor %" PRId64 ", context %" PRId64
                               ", pipeline 1, data %" PRId64,
                               *why, l.tp * l.cp * l.dp, l.tp, l.cp, l.dp);
    return DCPK_OK;
}

/* One sentence: the least that Megatron needs to fit, and why. */
static dcpk_status explain_choice(const struct dcpk_train_config *config, uint64_t limit_bytes,
                                  struct dcpk_doc *doc, struct dcpk_error *err)
{
    static const char *const choices[] = {"ddp", "distributed_optimizer", "optim_grads",
                                          "optim_grads_params", "more_ranks"};
    uint64_t need[DCPK_N_STRATEGIES];
    char limit[DCPK_PLAIN_SIZE_BYTES];
    const char *why = NULL;
    int first;

    for (int i = 0; i < DCPK_N_STRATEGIES; i++) {
        const struct dcpk_train_config c = dcpk_train_choice(config, (enum dcpk_strategy)i);

        if (dcpk_train_need(&c, DCPK_OF_MEGATRON, &need[i], err) != DCPK_OK)
            return err->status;
    }
    first = first_that_fits(need, config->layout.pp, limit_bytes);
    if (first < DCPK_N_STRATEGIES)
        why = choice_reason(config, need, first, dcpk_plain_size(limit_bytes, limit), doc);
    else if (explain_more_ranks(config, need, limit_bytes, &why, doc, err) != DCPK_OK)
        return err->status;
    dcpk_doc_set_text(doc, "choice", choices[first]);
    dcpk_doc_fact(doc, "advice", "advice", dcpk_fact_text(why));
    return DCPK_OK;
}

static dcpk_status explain_limit(const struct dcpk_train_config *c, uint64_t limit_bytes,
                                 struct dcpk_doc *doc, struct dcpk_error *err)
{
    dcpk_doc_fact(doc, "limit", "limit_bytes", dcpk_fact_bytes(limit_bytes));
    if (explain_choice(c, limit_bytes, doc, err) ||
        explain_fit(c, DCPK_OF_MEGATRON, limit_bytes, doc, err))
        return err->status;
    return explain_fit(c, DCPK_OF_THIS_RUN, limit_bytes, doc, err);
}

/* For programs: a row a stage. */
struct apart_of_stages {
    struct dcpk_train_apart *stages;
    int64_t n;
};

static void fill_apart(const void *context, struct dcpk_doc_rows *rows)
{
    const struct apart_of_stages *all = context;

    for (int64_t pp = 0; pp < all->n; pp++)
        DCPK_DOC_PUT(rows,
                     DCPK_MEMBER("buffer_bytes", dcpk_fact_bytes(all->stages[pp].buffer_bytes)),
                     DCPK_MEMBER("layer_bytes", dcpk_fact_bytes(all->stages[pp].layer_bytes)),
                     DCPK_MEMBER("outside_bytes", dcpk_fact_bytes(all->stages[pp].outside_bytes)));
}

/* Explains what the double buffer does not hold, where there is one. */
static dcpk_status explain_apart(const struct dcpk_train_config *config, struct dcpk_doc *doc,
                                 struct dcpk_error *err)
{
    struct apart_of_stages *all = dcpk_doc_take(doc, 1, sizeof *all);
    struct dcpk_bytes text = {0};

    if (all == NULL)
        return dcpk_doc_status(doc, err);
    all->stages = dcpk_doc_take(doc, (size_t)config->layout.pp, sizeof *all->stages);
    for (; all->stages != NULL && all->n < config->layout.pp; all->n++) {
        text.n_bytes = 0;
        if (dcpk_train_apart(config, all->n, &all->stages[all->n], &text, err) != DCPK_OK)
            break;
        if (text.n_bytes == 0)
            continue;
        dcpk_bytes_u8(&text, 0);
        dcpk_doc_note(doc, "double buffer", dcpk_doc_keep(doc, text.data, text.n_bytes));
    }
    if (err->status == DCPK_OK && all->n > 0 && all->stages[0].buffer_bytes > 0)
        dcpk_doc_set_table(doc, "double_buffer",
                           &(struct dcpk_doc_table){.fill = fill_apart, .context = all});
    dcpk_bytes_release(&text);
    return err->status;
}

dcpk_status dcpk_train_explain_memory(const struct dcpk_train_config *config, uint64_t limit_bytes,
                                      struct dcpk_doc *doc, struct dcpk_error *err)
{
    struct figures *all = dcpk_doc_take(doc, 1, sizeof *all);
    struct dcpk_train_footprint most;

    if (all == NULL)
        return dcpk_doc_status(doc, err);
    all->chosen = config->fsdp.strategy;
    for (int i = 0; i < N_COLUMNS; i++) {
        const struct dcpk_train_config c = dcpk_train_under(config, i);

        if (dcpk_train_footprint_most(&c, column_of(i), &most, err) != DCPK_OK)
            return err->status;
        memory_figures(all, i, most.held);
    }
    dcpk_doc_heading(doc, "memory of the rank that holds most: Megatron by strategy, and this run");
    put_tables(doc, all, "strategies", "this_run");
    dcpk_doc_note(doc, "this run",
                  "as the last line of a run prints it, with exact sums and all buffers of layers");
    dcpk_doc_note(
        doc, "act",
        "an estimate for Megatron: activations that backward reads, without attention scores");
    if (explain_apart(config, doc, err) != DCPK_OK)
        return err->status;
    dcpk_doc_fact(doc, "host memory", "save_copy_bytes", dcpk_fact_bytes(most.save_copy_bytes));
    dcpk_doc_note(doc, "saving",
                  "copies a rank's shards to host memory while a checkpoint is written; with "
                  "async_save this memory is held during the whole run");
    if (limit_bytes > 0 && explain_limit(config, limit_bytes, doc, err) != DCPK_OK)
        return err->status;
    return dcpk_doc_status(doc, err);
}

/* ---- sweeps ---- */

struct swept {
    struct dcpk_grid *layouts;
    uint64_t (*needs)[DCPK_N_STRATEGIES];
    size_t n;
    uint64_t limit_bytes; /* 0: none */
};

static dcpk_status count_layout(void *context, const struct dcpk_train_config *c,
                                struct dcpk_error *err)
{
    struct swept *swept = context;

    (void)c;
    (void)err;
    swept->n++;
    return DCPK_OK;
}

static dcpk_status sweep_layout(void *context, const struct dcpk_train_config *c,
                                struct dcpk_error *err)
{
    struct swept *swept = context;

    for (int i = 0; i < DCPK_N_STRATEGIES; i++) {
        const struct dcpk_train_config under = dcpk_train_under(c, i);

        if (dcpk_train_need(&under, DCPK_OF_MEGATRON, &swept->needs[swept->n][i], err) != DCPK_OK)
            return err->status;
    }
    swept->layouts[swept->n++] = c->layout;
    return DCPK_OK;
}

/* A line of text. */
static void put_swept_line(struct dcpk_doc_rows *rows, const struct dcpk_fact sizes[3],
                           const struct dcpk_fact needs[DCPK_N_STRATEGIES], const char *fits)
{
    struct dcpk_doc_cell cells[3 + DCPK_N_STRATEGIES + 1];
    size_t n = 0;

    for (size_t i = 0; i < 3; i++)
        cells[n++] = (struct dcpk_doc_cell){
            .title = "size", .fact = sizes[i], .flags = DCPK_DOC_RIGHT, .width = 4};
    for (size_t i = 0; i < DCPK_N_STRATEGIES; i++)
        cells[n++] = (struct dcpk_doc_cell){
            .title = "bytes", .fact = needs[i], .flags = DCPK_DOC_RIGHT, .width = FIGURE_COLUMNS};
    cells[n - 1].width = LAST_COLUMNS;
    cells[n++] = DCPK_DOC_SHOWN(fits != NULL, .title = "fits", .fact = dcpk_fact_text(fits));
    dcpk_doc_put(rows, cells, n);
}

static const char *swept_fits(const struct swept *swept, size_t row)
{
    const int first =
        first_that_fits(swept->needs[row], swept->layouts[row].pp, swept->limit_bytes);

    return first < DCPK_N_STRATEGIES ? dcpk_strategy_names[first] : "none";
}

static void fill_swept_lines(const void *context, struct dcpk_doc_rows *rows)
{
    const struct swept *swept = context;
    const bool has_limit = swept->limit_bytes > 0;
    struct dcpk_fact needs[DCPK_N_STRATEGIES];

    for (int i = 0; i < DCPK_N_STRATEGIES; i++)
        needs[i] = dcpk_fact_text(dcpk_strategy_names[i]);
    put_swept_line(rows,
                   (const struct dcpk_fact[]){dcpk_fact_text("tp"), dcpk_fact_text("pp"),
                                              dcpk_fact_text("dp")},
                   needs, has_limit ? "fits with" : NULL);
    for (size_t row = 0; row < swept->n; row++) {
        const struct dcpk_grid *l = &swept->layouts[row];

        for (int i = 0; i < DCPK_N_STRATEGIES; i++)
            needs[i] = dcpk_fact_bytes(swept->needs[row][i]);
        put_swept_line(rows,
                       (const struct dcpk_fact[]){dcpk_fact_int(l->tp), dcpk_fact_int(l->pp),
                                                  dcpk_fact_int(l->dp)},
                       needs, has_limit ? swept_fits(swept, row) : NULL);
    }
}

/* For programs. */
static void fill_swept(const void *context, struct dcpk_doc_rows *rows)
{
    const struct swept *swept = context;

    for (size_t row = 0; row < swept->n; row++) {
        const struct dcpk_grid *l = &swept->layouts[row];
        const uint64_t *needs = swept->needs[row];

        DCPK_DOC_PUT(rows, DCPK_MEMBER("tp", dcpk_fact_int(l->tp)),
                     DCPK_MEMBER("pp", dcpk_fact_int(l->pp)),
                     DCPK_MEMBER("dp", dcpk_fact_int(l->dp)),
                     DCPK_MEMBER("no_shard_bytes", dcpk_fact_bytes(needs[DCPK_NO_SHARD])),
                     DCPK_MEMBER("optim_bytes", dcpk_fact_bytes(needs[DCPK_OPTIM])),
                     DCPK_MEMBER("optim_grads_bytes", dcpk_fact_bytes(needs[DCPK_OPTIM_GRADS])),
                     DCPK_MEMBER("optim_grads_params_bytes",
                                 dcpk_fact_bytes(needs[DCPK_OPTIM_GRADS_PARAMS])),
                     dcpk_doc_member(swept->limit_bytes > 0, "fits",
                                     dcpk_fact_text(swept_fits(swept, row))));
    }
}

dcpk_status dcpk_train_explain_sweep(const struct dcpk_train_config *config, unsigned axes,
                                     uint64_t limit_bytes, struct dcpk_doc *doc,
                                     struct dcpk_error *err)
{
    struct swept *swept = dcpk_doc_take(doc, 1, sizeof *swept);

    if (swept == NULL)
        return dcpk_doc_status(doc, err);
    if (dcpk_train_each_layout(config, axes, &(struct dcpk_layout_visit){count_layout, swept},
                               err) != DCPK_OK)
        return err->status;
    if (swept->n == 0)
        return dcpk_fail(err, DCPK_EUSAGE, "no layout of these ranks makes a run of this model");
    swept->layouts = dcpk_doc_take(doc, swept->n, sizeof *swept->layouts);
    swept->needs = dcpk_doc_take(doc, swept->n, sizeof *swept->needs);
    if (swept->needs == NULL)
        return dcpk_doc_status(doc, err);
    swept->n = 0;
    swept->limit_bytes = limit_bytes;
    if (dcpk_train_each_layout(config, axes, &(struct dcpk_layout_visit){sweep_layout, swept},
                               err) != DCPK_OK)
        return err->status;
    dcpk_doc_heading(doc, "Megatron, the rank that holds most, by layout of the same ranks and by "
                          "strategy");
    dcpk_doc_show(doc, &(struct dcpk_doc_table){.fill = fill_swept_lines, .context = swept});
    dcpk_doc_set_table(doc, "sweep",
                       &(struct dcpk_doc_table){.fill = fill_swept, .context = swept});
    return dcpk_doc_status(doc, err);
}

/* ---- traffic ---- */

/* bytes_per_second: 0: not asked. */
static void comm_figures(struct figures *all, int column, const struct dcpk_fsdp_traffic *sent,
                         double bytes_per_second)
{
    const uint64_t *n = sent->n_bytes;
    const uint64_t gathered = n[DCPK_FSDP_GATHER] + n[DCPK_FSDP_OUTER_GATHER];
    const uint64_t reduced = n[DCPK_FSDP_REDUCE] + n[DCPK_FSDP_OUTER_REDUCE];
    const double rate = bytes_per_second > 0 ? bytes_per_second : 1;
    const struct dcpk_fact facts[] = {
        dcpk_fact_bytes(gathered), dcpk_fact_bytes(reduced),
        dcpk_fact_if(bytes_per_second > 0, dcpk_fact_number((double)(gathered + reduced) / rate))};
    static const char *const keys[] = {"gather_bytes", "reduce_bytes", "seconds"};
    static const char *const titles[] = {"gathered", "reduced", "seconds"};

    all->n = DCPK_COUNT(facts);
    for (size_t f = 0; f < all->n; f++) {
        all->list[f].key = keys[f];
        all->list[f].title = titles[f];
        all->list[f].of[column] = facts[f];
    }
}

dcpk_status dcpk_train_explain_comm(const struct dcpk_train_config *config, double bytes_per_second,
                                    struct dcpk_doc *doc, struct dcpk_error *err)
{
    struct figures *all = dcpk_doc_take(doc, 1, sizeof *all);

    if (all == NULL)
        return dcpk_doc_status(doc, err);
    all->chosen = config->fsdp.strategy;
    for (int i = 0; i < N_COLUMNS; i++) {
        const struct dcpk_train_config c = dcpk_train_under(config, i);
        struct dcpk_train_footprint first;

        if (dcpk_train_footprint(&c, 0, column_of(i), &first, err) != DCPK_OK)
            return err->status;
        comm_figures(all, i, &first.sent, bytes_per_second);
    }
    dcpk_doc_heading(doc, "data-parallel bytes that a rank of the first stage sends in a step; "
                          "not those of TP, PP, CP, EP");
    put_tables(doc, all, "volumes", "this_run_volume");
    dcpk_doc_note(doc, "slow?",
                  "check the bandwidth between GPUs (nvidia-smi topo -m) and that NVLink or a fast "
                  "interconnect is there; larger micro batches amortize communication; nsys or a "
                  "profiler shows what waits");
    return dcpk_doc_status(doc, err);
}
