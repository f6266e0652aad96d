/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - tables of memory and traffic, the layout and the micro batch that fit. */
#include "lib/train/explain.h"

#include <inttypes.h>
#include <stdio.h>

#include "lib/base/order.h"

#define MAX_RANKS 4096
#define MAX_TP    8

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

/* The run as it would be under another strategy: Megatron-FSDP's, where DDP is configured. */
static struct dcpk_train_config column_config(const struct dcpk_train_config *config, int column)
{
    const enum dcpk_strategy strategy = (enum dcpk_strategy)column;
    struct dcpk_train_config c = *config;

    if (column == THIS_RUN || strategy == config->fsdp.strategy)
        return c;
    c.fsdp.mode = DCPK_MODE_MEGATRON_FSDP;
    c.fsdp.strategy = strategy;
    c.fsdp.has_distributed_optimizer = true;
    c.fsdp.overlaps_reduce = config->fsdp.asks_overlap || strategy >= DCPK_OPTIM_GRADS;
    c.fsdp.is_outer_sharded &= strategy == DCPK_OPTIM_GRADS_PARAMS;
    return c;
}

/* ---- what fits ---- */

dcpk_status dcpk_train_need(const struct dcpk_train_config *config, enum dcpk_footprint_of of,
                            uint64_t *n_bytes, struct dcpk_error *err)
{
    struct dcpk_train_footprint most;

    if (dcpk_train_footprint_most(config, of, &most, err) != DCPK_OK)
        return err->status;
    *n_bytes = dcpk_train_held_sum(most.held);
    return DCPK_OK;
}

/* Activations alone grow with the micro batch, each sample by as much. */
dcpk_status dcpk_train_largest_batch(const struct dcpk_train_config *config,
                                     enum dcpk_footprint_of of, uint64_t limit_bytes,
                                     int64_t *micro_batch, struct dcpk_error *err)
{
    struct dcpk_train_config c = *config;
    uint64_t one, two;

    c.data.micro_batch = 1;
    if (dcpk_train_need(&c, of, &one, err) != DCPK_OK)
        return err->status;
    c.data.micro_batch = 2;
    if (dcpk_train_need(&c, of, &two, err) != DCPK_OK)
        return err->status;
    *micro_batch = 0;
    if (limit_bytes >= one)
        *micro_batch = 1 + (int64_t)((limit_bytes - one) / (two - one));
    return DCPK_OK;
}

/* True if tp ranks can share a layer: the conditions of knobs_sizes.c on a run. */
static bool layout_divides(const struct dcpk_train_config *c, int64_t tp)
{
    const struct dcpk_train_model *m = &c->model;

    return m->heads % tp == 0 && m->groups % tp == 0 && m->ffn % tp == 0 && m->hidden % tp == 0 &&
           m->shared_ffn % tp == 0 && c->precision.virtual_slices % tp == 0;
}

/* True if dp ranks can share experts and the batch. A batch that follows them fits any number of
 * them: those that experts need, times 1, 2, 4, ... */
static bool layout_shares(const struct dcpk_train_config *c, int64_t dp)
{
    const struct dcpk_train_data *d = &c->data;
    int64_t least = 1;

    if (dp * c->layout.cp % c->layout.ep != 0)
        return false;
    if (!d->batch_follows_ranks)
        return d->global_batch % (d->micro_batch * dp) == 0;
    while (least * c->layout.cp % c->layout.ep != 0)
        least++;
    while (least < dp)
        least *= 2;
    return least == dp;
}

/* Changes `c` to tp and dp ranks where they make a run. */
static bool layout_try(struct dcpk_train_config *c, int64_t tp, int64_t dp)
{
    struct dcpk_grid *l = &c->layout;

    if (!layout_divides(c, tp) || !layout_shares(c, dp))
        return false;
    l->tp = tp;
    l->dp = dp;
    l->instances = 1;
    c->fsdp.is_outer_sharded = false;
    if (c->data.batch_follows_ranks)
        c->data.global_batch = c->data.micro_batch * dp;
    c->model.padded_vocab = dcpk_train_padded_vocab(&c->model, tp);
    return true;
}

dcpk_status dcpk_train_smallest_layout(const struct dcpk_train_config *config,
                                       enum dcpk_footprint_of of, uint64_t limit_bytes,
                                       struct dcpk_grid *layout, struct dcpk_error *err)
{
    const int64_t most = MAX_RANKS / (config->layout.cp * config->layout.pp);
    struct dcpk_train_config c = *config;
    uint64_t n_bytes;

    *layout = (struct dcpk_grid){0};
    for (int64_t n = 1; n <= most; n++)
        for (int64_t tp = 1; tp <= dcpk_min_i64(n, MAX_TP); tp++) {
            if (n % tp != 0 || !layout_try(&c, tp, n / tp))
                continue;
            if (dcpk_train_need(&c, of, &n_bytes, err) != DCPK_OK)
                return err->status;
            if (n_bytes > limit_bytes)
                continue;
            *layout = c.layout;
            return DCPK_OK;
        }
    return DCPK_OK;
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
        dcpk_doc_row(doc, label, "none of up to %d ranks fits", MAX_RANKS);
    else
        dcpk_doc_row(doc, label,
                     "at least %" PRId64 " ranks: tensor %" PRId64 ", context %" PRId64
                     ", pipeline %" PRId64 ", data %" PRId64,
                     n_ranks, l.tp, l.cp, l.pp, l.dp);
    if (need > limit_bytes && of == DCPK_OF_THIS_RUN)
        explain_advice(c, doc);
    return DCPK_OK;
}

static dcpk_status explain_limit(const struct dcpk_train_config *c, uint64_t limit_bytes,
                                 struct dcpk_doc *doc, struct dcpk_error *err)
{
    dcpk_doc_fact(doc, "limit", "limit_bytes", dcpk_fact_bytes(limit_bytes));
    if (explain_fit(c, DCPK_OF_MEGATRON, limit_bytes, doc, err))
        return err->status;
    return explain_fit(c, DCPK_OF_THIS_RUN, limit_bytes, doc, err);
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
        const struct dcpk_train_config c = column_config(config, i);

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
    dcpk_doc_fact(doc, "host memory", "save_copy_bytes", dcpk_fact_bytes(most.save_copy_bytes));
    dcpk_doc_note(doc, "saving",
                  "copies a rank's shards to host memory while a checkpoint is written; with "
                  "async_save this memory is held during the whole run");
    if (limit_bytes > 0 && explain_limit(config, limit_bytes, doc, err) != DCPK_OK)
        return err->status;
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
        const struct dcpk_train_config c = column_config(config, i);
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
