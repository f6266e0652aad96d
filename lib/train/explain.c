/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - tables of memory and traffic, the layout and the micro batch that fit. */
#include "lib/train/explain.h"

#include <inttypes.h>
#include <stdio.h>

#include "lib/base/order.h"

#define MOST_RANKS 4096
#define MOST_TP    8

/* Columns of both tables: what is measured, then each strategy. */
#define WHAT_COLUMNS   8
#define FIGURE_COLUMNS 13 /* "optim_grads *"; figures are shorter, "1023.99 KiB" */
#define LAST_COLUMNS   20 /* "optim_grads_params *" */

/* The run as it would be under another strategy: Megatron-FSDP's, where DDP is configured. */
static struct dcpk_train_config explain_column(const struct dcpk_train_config *config,
                                               enum dcpk_strategy strategy)
{
    struct dcpk_train_config c = *config;

    if (strategy == config->fsdp.strategy)
        return c;
    c.fsdp.mode = DCPK_MODE_MEGATRON_FSDP;
    c.fsdp.strategy = strategy;
    c.fsdp.has_distributed_optimizer = true;
    c.fsdp.overlaps_reduce = config->fsdp.asks_overlap || strategy >= DCPK_OPTIM_GRADS;
    c.layout.is_outer_sharded &= strategy == DCPK_OPTIM_GRADS_PARAMS;
    return c;
}

/* ---- what fits ---- */

static uint64_t footprint_sum(const uint64_t n_bytes[DCPK_N_TAGS])
{
    uint64_t sum = 0;

    for (int tag = 0; tag < DCPK_N_TAGS; tag++)
        sum += n_bytes[tag];
    return sum;
}

/* By tag, of the stage that holds most. */
static dcpk_status footprint_of_most(const struct dcpk_train_config *config,
                                     uint64_t n_bytes[DCPK_N_TAGS], struct dcpk_train_sizes *sizes,
                                     struct dcpk_error *err)
{
    uint64_t most = 0;

    for (int64_t pp = 0; pp < config->layout.pp; pp++) {
        const struct dcpk_train_place place = {.pp = pp};
        uint64_t here[DCPK_N_TAGS];
        struct dcpk_train_sizes of_stage;

        if (dcpk_train_measure(config, &place, &of_stage, err) != DCPK_OK)
            return err->status;
        dcpk_train_footprint(config, &of_stage, here);
        if (footprint_sum(here) <= most)
            continue;
        most = footprint_sum(here);
        *sizes = of_stage;
        for (int tag = 0; tag < DCPK_N_TAGS; tag++)
            n_bytes[tag] = here[tag];
    }
    return DCPK_OK;
}

dcpk_status dcpk_train_need(const struct dcpk_train_config *config, uint64_t *n_bytes,
                            struct dcpk_error *err)
{
    uint64_t by_tag[DCPK_N_TAGS] = {0};
    struct dcpk_train_sizes sizes;

    if (footprint_of_most(config, by_tag, &sizes, err) != DCPK_OK)
        return err->status;
    *n_bytes = footprint_sum(by_tag);
    return DCPK_OK;
}

/* Activations alone grow with the micro batch, by the sample. */
dcpk_status dcpk_train_largest_batch(const struct dcpk_train_config *config, uint64_t limit_bytes,
                                     int64_t *micro_batch, struct dcpk_error *err)
{
    struct dcpk_train_config one = *config;
    uint64_t by_tag[DCPK_N_TAGS] = {0}, kept;
    struct dcpk_train_sizes sizes;

    one.data.micro_batch = 1;
    if (footprint_of_most(&one, by_tag, &sizes, err) != DCPK_OK)
        return err->status;
    kept = footprint_sum(by_tag) - by_tag[DCPK_TAG_ACT];
    *micro_batch = 0;
    if (limit_bytes > kept && by_tag[DCPK_TAG_ACT] > 0)
        *micro_batch = (int64_t)((limit_bytes - kept) / by_tag[DCPK_TAG_ACT]);
    return DCPK_OK;
}

/* May tp ranks share a layer? What knobs_sizes.c asks of a run. */
static bool layout_divides(const struct dcpk_train_config *c, int64_t tp)
{
    const struct dcpk_train_model *m = &c->model;

    return m->heads % tp == 0 && m->groups % tp == 0 && m->ffn % tp == 0 && m->hidden % tp == 0 &&
           m->shared_ffn % tp == 0 && c->precision.virtual_slices % tp == 0;
}

/* May dp ranks share experts and the batch? One that follows them fits any number of them: those
 * that experts need, times 1, 2, 4, ... */
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
    struct dcpk_train_layout *l = &c->layout;

    if (!layout_divides(c, tp) || !layout_shares(c, dp))
        return false;
    l->tp = tp;
    l->dp = dp;
    l->instances = 1;
    l->is_outer_sharded = false;
    if (c->data.batch_follows_ranks)
        c->data.global_batch = c->data.micro_batch * dp;
    c->model.padded_vocab = dcpk_train_padded_vocab(&c->model, tp);
    return true;
}

dcpk_status dcpk_train_smallest_layout(const struct dcpk_train_config *config, uint64_t limit_bytes,
                                       struct dcpk_train_layout *layout, struct dcpk_error *err)
{
    const int64_t most = MOST_RANKS / (config->layout.cp * config->layout.pp);
    struct dcpk_train_config c = *config;
    uint64_t n_bytes;

    *layout = (struct dcpk_train_layout){0};
    for (int64_t n = 1; n <= most; n++)
        for (int64_t tp = 1; tp <= dcpk_min_i64(n, MOST_TP); tp++) {
            if (n % tp != 0 || !layout_try(&c, tp, n / tp))
                continue;
            if (dcpk_train_need(&c, &n_bytes, err) != DCPK_OK)
                return err->status;
            if (n_bytes > limit_bytes)
                continue;
            *layout = c.layout;
            return DCPK_OK;
        }
    return DCPK_OK;
}

/* One line of a table in text: a figure of each strategy. */
static void put_figures(struct dcpk_doc_rows *rows, const char *what,
                        const struct dcpk_fact figures[DCPK_N_STRATEGIES])
{
    struct dcpk_doc_cell cells[1 + DCPK_N_STRATEGIES] = {
        {.title = "what", .fact = dcpk_fact_text(what), .width = WHAT_COLUMNS}};

    for (int i = 0; i < DCPK_N_STRATEGIES; i++)
        cells[1 + i] = (struct dcpk_doc_cell){.title = dcpk_strategy_names[i],
                                              .fact = figures[i],
                                              .flags = DCPK_DOC_RIGHT,
                                              .width = FIGURE_COLUMNS};
    cells[DCPK_N_STRATEGIES].width = LAST_COLUMNS;
    dcpk_doc_put(rows, cells, DCPK_COUNT(cells));
}

/* The line over it: names of strategies, with a star behind the one that is asked for. */
static void put_strategies(struct dcpk_doc_rows *rows, enum dcpk_strategy chosen)
{
    char names[DCPK_N_STRATEGIES][LAST_COLUMNS + 1];
    struct dcpk_fact facts[DCPK_N_STRATEGIES];

    for (int i = 0; i < DCPK_N_STRATEGIES; i++) {
        const char *mark = chosen == (enum dcpk_strategy)i ? " *" : "";

        snprintf(names[i], sizeof names[i], "%s%s", dcpk_strategy_names[i], mark);
        facts[i] = dcpk_fact_text(names[i]);
    }
    put_figures(rows, "", facts);
}

/* ---- memory ---- */

struct memory_row {
    uint64_t n_bytes[DCPK_N_TAGS];
    enum dcpk_strategy chosen;
};

static void fill_memory(const void *context, struct dcpk_doc_rows *rows)
{
    const struct memory_row *all = context;

    for (size_t i = 0; i < DCPK_N_STRATEGIES; i++) {
        const uint64_t *n = all[i].n_bytes;

        DCPK_DOC_PUT(rows, DCPK_MEMBER("strategy", dcpk_fact_text(dcpk_strategy_names[i])),
                     DCPK_MEMBER("weights_bytes", dcpk_fact_bytes(n[DCPK_TAG_WEIGHTS])),
                     DCPK_MEMBER("main_bytes", dcpk_fact_bytes(n[DCPK_TAG_MAIN])),
                     DCPK_MEMBER("grads_bytes", dcpk_fact_bytes(n[DCPK_TAG_GRADS])),
                     DCPK_MEMBER("adam_bytes", dcpk_fact_bytes(n[DCPK_TAG_ADAM])),
                     DCPK_MEMBER("gather_bytes", dcpk_fact_bytes(n[DCPK_TAG_GATHER])),
                     DCPK_MEMBER("comm_bytes", dcpk_fact_bytes(n[DCPK_TAG_COMM])),
                     DCPK_MEMBER("act_bytes", dcpk_fact_bytes(n[DCPK_TAG_ACT])),
                     DCPK_MEMBER("all_bytes", dcpk_fact_bytes(footprint_sum(n))));
    }
}

static void fill_memory_lines(const void *context, struct dcpk_doc_rows *rows)
{
    static const char *const tags[DCPK_N_TAGS] = {
        [DCPK_TAG_WEIGHTS] = "weights", [DCPK_TAG_MAIN] = "main",     [DCPK_TAG_GRADS] = "grads",
        [DCPK_TAG_ADAM] = "adam",       [DCPK_TAG_GATHER] = "gather", [DCPK_TAG_COMM] = "comm",
        [DCPK_TAG_ACT] = "act"};
    const struct memory_row *all = context;
    struct dcpk_fact facts[DCPK_N_STRATEGIES];

    put_strategies(rows, all->chosen);
    for (size_t tag = 0; tag < DCPK_N_TAGS; tag++) {
        for (size_t i = 0; i < DCPK_N_STRATEGIES; i++)
            facts[i] = dcpk_fact_bytes(all[i].n_bytes[tag]);
        put_figures(rows, tags[tag], facts);
    }
    for (size_t i = 0; i < DCPK_N_STRATEGIES; i++)
        facts[i] = dcpk_fact_bytes(footprint_sum(all[i].n_bytes));
    put_figures(rows, "all", facts);
}

/* What a person can change, by what the configuration has not done yet. */
static void explain_advice(const struct dcpk_train_config *c, struct dcpk_doc *doc)
{
    dcpk_doc_heading(doc, "what would lower it");
    if (c->fsdp.mode != DCPK_MODE_MEGATRON_FSDP)
        dcpk_doc_note(doc, "sharding",
                      "use_megatron_fsdp is off: it shares weights, gradients and optimizer state "
                      "out over data-parallel ranks; checkpoints then are fsdp_dtensor");
    else if (c->fsdp.strategy != DCPK_OPTIM_GRADS_PARAMS)
        dcpk_doc_note(doc, "sharding",
                      "data_parallel_sharding_strategy optim_grads_params shares out most");
    if (c->data.micro_batch > 1)
        dcpk_doc_note(doc, "batch", "a smaller micro_batch_size lowers activations");
    if (!c->fsdp.recomputes)
        dcpk_doc_note(doc, "activations",
                      "recompute_granularity full keeps the inputs of layers alone; sharding does "
                      "not lower activations");
    if (c->fsdp.has_double_buffer)
        dcpk_doc_note(doc, "buffers", "fsdp_double_buffer keeps its two buffers all the time");
    if (c->fsdp.strategy == DCPK_OPTIM_GRADS_PARAMS && !c->fsdp.has_double_buffer)
        dcpk_doc_note(doc, "buffers",
                      "fsdp_double_buffer has weights and gradients of two units on their way, "
                      "else those of up to suggested_communication_unit_size (10^9) elements");
    dcpk_doc_note(doc, "layout",
                  "more tensor, pipeline or context parallelism cuts each rank's "
                  "part of the model or of the sample");
}

static dcpk_status explain_limit(const struct dcpk_train_config *c, uint64_t limit_bytes,
                                 struct dcpk_doc *doc, struct dcpk_error *err)
{
    struct dcpk_train_layout layout;
    int64_t micro_batch;
    uint64_t need;

    if (dcpk_train_need(c, &need, err) ||
        dcpk_train_largest_batch(c, limit_bytes, &micro_batch, err) ||
        dcpk_train_smallest_layout(c, limit_bytes, &layout, err))
        return err->status;
    dcpk_doc_fact(doc, "limit", "limit_bytes", dcpk_fact_bytes(limit_bytes));
    dcpk_doc_fact(doc, "fits", "fits", dcpk_fact_flag(need <= limit_bytes));
    dcpk_doc_fact(doc, "largest micro batch", "largest_micro_batch", dcpk_fact_int(micro_batch));
    dcpk_doc_set(doc, "smallest_layout.tp", dcpk_fact_int(layout.tp));
    dcpk_doc_set(doc, "smallest_layout.cp", dcpk_fact_int(layout.cp));
    dcpk_doc_set(doc, "smallest_layout.pp", dcpk_fact_int(layout.pp));
    dcpk_doc_set(doc, "smallest_layout.dp", dcpk_fact_int(layout.dp));
    dcpk_doc_set(doc, "smallest_layout.n_ranks",
                 dcpk_fact_int(layout.tp * layout.cp * layout.pp * layout.dp));
    if (layout.tp == 0)
        dcpk_doc_row(doc, "smallest layout", "none up to %d ranks fits", MOST_RANKS);
    else
        dcpk_doc_row(doc, "smallest layout",
                     "%" PRId64 " ranks: tensor %" PRId64 ", context %" PRId64 ", pipeline %" PRId64
                     ", data %" PRId64,
                     layout.tp * layout.cp * layout.pp * layout.dp, layout.tp, layout.cp, layout.pp,
                     layout.dp);
    if (need > limit_bytes)
        explain_advice(c, doc);
    return DCPK_OK;
}

dcpk_status dcpk_train_explain_memory(const struct dcpk_train_config *config, uint64_t limit_bytes,
                                      struct dcpk_doc *doc, struct dcpk_error *err)
{
    struct memory_row *rows = dcpk_doc_take(doc, DCPK_N_STRATEGIES, sizeof *rows);
    struct dcpk_train_sizes sizes = {0};
    uint64_t copy_bytes = 0;

    if (rows == NULL)
        return dcpk_doc_status(doc, err);
    for (int i = 0; i < DCPK_N_STRATEGIES; i++) {
        const struct dcpk_train_config c = explain_column(config, (enum dcpk_strategy)i);

        rows[i].chosen = config->fsdp.strategy;
        if (footprint_of_most(&c, rows[i].n_bytes, &sizes, err) != DCPK_OK)
            return err->status;
        if (c.fsdp.strategy == config->fsdp.strategy)
            copy_bytes = dcpk_train_copy_bytes(&c, &sizes);
    }
    dcpk_doc_heading(doc, "memory of the rank that holds most, by Megatron's formulas");
    dcpk_doc_show(doc, &(struct dcpk_doc_table){.fill = fill_memory_lines, .context = rows});
    dcpk_doc_set_table(doc, "strategies",
                       &(struct dcpk_doc_table){.fill = fill_memory, .context = rows});
    dcpk_doc_note(doc, "act", "an estimate: what backward reads, without scores of attention");
    dcpk_doc_fact(doc, "host memory", "save_copy_bytes", dcpk_fact_bytes(copy_bytes));
    dcpk_doc_note(doc, "saving",
                  "copies what a rank saves to the host: while a checkpoint is written; with "
                  "async_save the memory is the run's from its beginning to its end");
    if (limit_bytes > 0 && explain_limit(config, limit_bytes, doc, err) != DCPK_OK)
        return err->status;
    return dcpk_doc_status(doc, err);
}

/* ---- traffic ---- */

struct comm_row {
    struct dcpk_train_volume volume;
    double bytes_per_second; /* 0: not asked */
    enum dcpk_strategy chosen;
};

/* Absent where no rate is given. */
static struct dcpk_fact comm_seconds(const struct comm_row *r)
{
    const bool is_asked = r->bytes_per_second > 0;
    const double n_bytes = (double)(r->volume.gather_bytes + r->volume.reduce_bytes);

    return dcpk_fact_if(is_asked, dcpk_fact_number(is_asked ? n_bytes / r->bytes_per_second : 0));
}

static void fill_comm(const void *context, struct dcpk_doc_rows *rows)
{
    const struct comm_row *all = context;

    for (size_t i = 0; i < DCPK_N_STRATEGIES; i++)
        DCPK_DOC_PUT(rows, DCPK_MEMBER("strategy", dcpk_fact_text(dcpk_strategy_names[i])),
                     DCPK_MEMBER("gather_bytes", dcpk_fact_bytes(all[i].volume.gather_bytes)),
                     DCPK_MEMBER("reduce_bytes", dcpk_fact_bytes(all[i].volume.reduce_bytes)),
                     DCPK_MEMBER("seconds", comm_seconds(&all[i])));
}

static void fill_comm_lines(const void *context, struct dcpk_doc_rows *rows)
{
    const struct comm_row *all = context;
    struct dcpk_fact gathered[DCPK_N_STRATEGIES], reduced[DCPK_N_STRATEGIES],
        seconds[DCPK_N_STRATEGIES];

    for (size_t i = 0; i < DCPK_N_STRATEGIES; i++) {
        gathered[i] = dcpk_fact_bytes(all[i].volume.gather_bytes);
        reduced[i] = dcpk_fact_bytes(all[i].volume.reduce_bytes);
        seconds[i] = comm_seconds(&all[i]);
    }
    put_strategies(rows, all->chosen);
    put_figures(rows, "gathered", gathered);
    put_figures(rows, "reduced", reduced);
    if (all->bytes_per_second > 0)
        put_figures(rows, "seconds", seconds);
}

dcpk_status dcpk_train_explain_comm(const struct dcpk_train_config *config, double bytes_per_second,
                                    struct dcpk_doc *doc, struct dcpk_error *err)
{
    struct comm_row *rows = dcpk_doc_take(doc, DCPK_N_STRATEGIES, sizeof *rows);

    if (rows == NULL)
        return dcpk_doc_status(doc, err);
    for (int i = 0; i < DCPK_N_STRATEGIES; i++) {
        const struct dcpk_train_config c = explain_column(config, (enum dcpk_strategy)i);
        struct dcpk_train_sizes sizes;

        if (dcpk_train_measure(&c, &(struct dcpk_train_place){0}, &sizes, err) != DCPK_OK)
            return err->status;
        rows[i].chosen = config->fsdp.strategy;
        rows[i].bytes_per_second = bytes_per_second;
        dcpk_train_volume(&c, &sizes, &rows[i].volume);
    }
    dcpk_doc_heading(doc, "bytes that a rank of the first stage sends in a step");
    dcpk_doc_show(doc, &(struct dcpk_doc_table){.fill = fill_comm_lines, .context = rows});
    dcpk_doc_set_table(doc, "volumes",
                       &(struct dcpk_doc_table){.fill = fill_comm, .context = rows});
    dcpk_doc_note(doc, "slow?",
                  "check the bandwidth between GPUs (nvidia-smi topo -m) and that NVLink or a fast "
                  "interconnect is there; larger micro batches amortize communication; nsys or a "
                  "profiler shows what waits");
    return dcpk_doc_status(doc, err);
}
