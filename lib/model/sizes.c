/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.c - sizes that attributes of args give: of the mesh, of the model; which layers have
 * experts. */
#include "lib/model/sizes.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/base/order.h"

/* True if the value is there, and Python takes it for false. A number that is not 0 is on. */
static bool is_off(const struct dcpk_value *value)
{
    int64_t number;

    if (dcpk_value_is_none(value))
        return value != NULL;
    return dcpk_value_as_int(value, &number) && number == 0;
}

const struct dcpk_value *dcpk_query_groups(const struct dcpk_value *attrs)
{
    const struct dcpk_value *groups = dcpk_value_get(attrs, "num_query_groups");

    if (is_off(dcpk_value_get(attrs, "group_query_attention")) || dcpk_value_is_none(groups))
        return dcpk_value_get(attrs, "num_attention_heads");
    return groups;
}

dcpk_status dcpk_tokens_fit(const struct dcpk_value *attrs, int64_t n_rows, struct dcpk_error *err)
{
    int64_t n_tokens;

    if (!dcpk_value_as_int(dcpk_value_get(attrs, "vocab_size"), &n_tokens) || n_rows >= n_tokens)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EMISMATCH,
                     "a vocabulary of %" PRId64 " would cut into the %" PRId64
                     " tokens that args.vocab_size gives",
                     n_rows, n_tokens);
}

/* ---- layers with experts ---- */

/*
 *   sum  = term { "+" term }
 *   term = ( list | "(" sum ")" ) { "*" n }
 *   list = "[" { 0 | 1 | "," } "]"
 *
 * "([0]*1+[1]*3)*2": 0 1 1 1 0 1 1 1
 */

/* Sums of lists, each repeated. */
struct frequency {
    const char *at;
    bool *layers;
    size_t n, most; /* filled; n passes most where the text makes more */
    int depth;
    bool is_bad;
};

#define MAX_NESTED 8
#define MAX_TEXT   4096

static void skip_spaces(struct frequency *f)
{
    f->at += strspn(f->at, " \t");
}

static bool take(struct frequency *f, char c)
{
    skip_spaces(f);
    if (*f->at != c)
        return false;
    f->at++;
    return true;
}

static void add_layer(struct frequency *f, bool is_moe)
{
    if (f->n < f->most)
        f->layers[f->n] = is_moe;
    f->n += f->n <= f->most;
}

static void take_list(struct frequency *f)
{
    while (!take(f, ']')) {
        skip_spaces(f);
        f->is_bad |= *f->at != '0' && *f->at != '1';
        if (f->is_bad)
            return;
        add_layer(f, *f->at++ == '1');
        if (!take(f, ',') && *f->at != ']')
            f->is_bad = true;
    }
}

/* The layers from `first` on stand there `times` times in all. */
static void repeat(struct frequency *f, size_t first, long times)
{
    const size_t n = f->n - first;

    if (times < 1)
        f->n = first;
    for (long i = 1; i < times && n > 0 && f->n <= f->most; i++)
        for (size_t j = 0; j < n && f->n <= f->most; j++)
            add_layer(f, f->layers[first + j]);
}

static void take_sum(struct frequency *f);

static void take_term(struct frequency *f)
{
    const size_t first = f->n;

    if (take(f, '['))
        take_list(f);
    else if (f->depth < MAX_NESTED && take(f, '(')) {
        f->depth++;
        take_sum(f);
        f->depth--;
        f->is_bad |= !take(f, ')');
    } else
        f->is_bad = true;
    while (!f->is_bad && take(f, '*')) {
        char *end;

        skip_spaces(f);
        f->is_bad |= *f->at < '0' || *f->at > '9';
        repeat(f, first, strtol(f->at, &end, 10));
        f->at = end;
    }
}

static void take_sum(struct frequency *f)
{
    do
        take_term(f);
    while (!f->is_bad && take(f, '+'));
}

/* All of the text, and as many layers as there are. */
static bool parse_frequency(const char *text, bool *layers, size_t n_layers)
{
    struct frequency f = {.at = text, .layers = layers, .most = n_layers};

    take_sum(&f);
    skip_spaces(&f);
    return !f.is_bad && *f.at == '\0' && f.n == n_layers;
}

static bool list_frequency(const struct dcpk_value *list, bool *layers, size_t n_layers)
{
    int64_t on;

    if (list->n != n_layers)
        return false;
    for (size_t i = 0; i < n_layers; i++) {
        if (!dcpk_value_as_int(list->as.items[i], &on) || (on != 0 && on != 1))
            return false;
        layers[i] = on == 1;
    }
    return true;
}

/* An int has every n-th layer, from the first on. */
static bool int_frequency(int64_t every, bool *layers, size_t n_layers)
{
    for (size_t i = 0; i < n_layers && every > 0; i++)
        layers[i] = (int64_t)i % every == 0;
    return every > 0;
}

bool dcpk_moe_layers_parse(const char *text, bool *layers, size_t n_layers)
{
    char *end;
    const long every = strtol(text, &end, 10);

    if (strlen(text) > MAX_TEXT)
        return false;
    if (end != text && *end == '\0')
        return int_frequency(every, layers, n_layers);
    return parse_frequency(text, layers, n_layers);
}

bool dcpk_moe_layers_read(const struct dcpk_value *freq, bool *layers, size_t n_layers)
{
    int64_t every;

    if (freq == NULL)
        return false;
    if (dcpk_value_is_list(freq))
        return list_frequency(freq, layers, n_layers);
    if (dcpk_value_as_int(freq, &every))
        return int_frequency(every, layers, n_layers);
    return dcpk_value_as_str(freq) != NULL &&
           dcpk_moe_layers_parse(dcpk_value_as_str(freq), layers, n_layers);
}

bool dcpk_layer_has_indexer(const struct dcpk_value *attrs, int64_t layer)
{
    const int64_t every = dcpk_value_int_or(attrs, "dsa_indexer_topk_freq", 1);
    const int64_t first = dcpk_value_int_or(attrs, "dsa_indexer_skip_topk_offset", 1);

    return every <= 1 || dcpk_max_i64(layer + 1 - dcpk_max_i64(first, 1), 0) % every == 0;
}

/* ---- the mesh ---- */

const struct dcpk_layout_size dcpk_layout_sizes[DCPK_LAYOUT_N_SIZES] = {
    {"tensor_model_parallel_size", offsetof(struct dcpk_grid, tp)},
    {"pipeline_model_parallel_size", offsetof(struct dcpk_grid, pp)},
    {"expert_model_parallel_size", offsetof(struct dcpk_grid, ep)},
    {"context_parallel_size", offsetof(struct dcpk_grid, cp)},
    {"data_parallel_size", offsetof(struct dcpk_grid, dp)},
    {"world_size", offsetof(struct dcpk_grid, world)},
    {"expert_tensor_parallel_size", offsetof(struct dcpk_grid, etp)},
    {"virtual_pipeline_model_parallel_size", offsetof(struct dcpk_grid, vpp)},
    {"decoder_first_pipeline_num_layers", offsetof(struct dcpk_grid, first)},
    {"decoder_last_pipeline_num_layers", offsetof(struct dcpk_grid, last)},
};

const struct dcpk_stage_arg dcpk_stage_args[DCPK_N_STAGE_ARGS] = {
    {"account_for_embedding_in_pipeline_split", true},
    {"account_for_loss_in_pipeline_split", true},
    {"decoder_first_pipeline_num_layers", false},
    {"decoder_last_pipeline_num_layers", false},
    {"num_layers_per_virtual_pipeline_stage", false},
    {"num_virtual_stages_per_pipeline_rank", false},
    {"pipeline_model_parallel_layout", false},
    {"virtual_pipeline_model_parallel_size", false},
};

void dcpk_layout_read(const struct dcpk_value *attrs, struct dcpk_grid *layout)
{
    for (size_t i = 0; i < DCPK_LAYOUT_N_SIZES; i++) {
        int64_t size = 0;

        if (!dcpk_value_as_int(dcpk_value_get(attrs, dcpk_layout_sizes[i].name), &size) || size < 0)
            size = 0;
        memcpy((char *)layout + dcpk_layout_sizes[i].at, &size, sizeof size);
    }
}

int64_t dcpk_layout_get(const struct dcpk_grid *layout, const struct dcpk_layout_size *size)
{
    int64_t value;

    memcpy(&value, (const char *)layout + size->at, sizeof value);
    return value;
}

static int64_t size_or(int64_t size, int64_t other)
{
    return dcpk_max_i64(size > 0 ? size : other, 1);
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

void dcpk_layout_fit_ranks(const struct dcpk_grid *from, struct dcpk_grid *mesh)
{
    const int64_t tp = size_or(mesh->tp, from->tp), pp = size_or(mesh->pp, from->pp);
    const int64_t etp = size_or(mesh->etp, mesh->tp > 0 ? mesh->tp : from->etp);
    int64_t dense, expert, world;

    if (mesh->dp > 0 || mesh->world > 0 || from->world <= 0 || !dcpk_mul_i64(tp, pp, &dense) ||
        !dcpk_mul_i64(dense, size_or(mesh->cp, from->cp), &dense) ||
        !dcpk_mul_i64(size_or(mesh->ep, from->ep), pp, &expert) ||
        !dcpk_mul_i64(expert, etp, &expert) || !dcpk_mul_i64(dense, size_or(from->dp, 1), &world) ||
        !dcpk_mul_i64(world, expert / greatest_divisor(world, expert), &world))
        return;
    mesh->world = world;
    mesh->dp = world / dense;
}

size_t dcpk_layout_args(const struct dcpk_grid *mesh, const struct dcpk_value *attrs,
                        struct dcpk_layout_arg *list)
{
    const int64_t etp = mesh->etp > 0 ? mesh->etp : mesh->tp;
    const struct dcpk_layout_arg completed[] = {
        {"expert_tensor_parallel_size", mesh->etp > 0 ? 0 : etp},
        {"transformer_pipeline_model_parallel_size", mesh->pp},
        {"tensor_parallel_num_weight_shards", mesh->tp},
        {"gtp_weight_remat_size", mesh->tp > 0},
        {"expert_tensor_parallel_num_weight_shards", etp},
        {"expert_gtp_weight_remat_size", etp > 0},
    };
    int64_t old;
    size_t n = 0;

    for (size_t i = 0; i < DCPK_LAYOUT_N_SIZES; i++) {
        list[n] = (struct dcpk_layout_arg){dcpk_layout_sizes[i].name,
                                           dcpk_layout_get(mesh, &dcpk_layout_sizes[i])};
        n += list[n].size > 0;
    }
    for (size_t i = 0; i < DCPK_COUNT(completed); i++)
        if (completed[i].size > 0 &&
            dcpk_value_as_int(dcpk_value_get(attrs, completed[i].name), &old))
            list[n++] = completed[i];
    return n;
}

bool dcpk_layout_is_arg(const char *name)
{
    static const char *const others[] = {"transformer_pipeline_model_parallel_size",
                                         "tensor_parallel_num_weight_shards",
                                         "gtp_weight_remat_size",
                                         "expert_tensor_parallel_num_weight_shards",
                                         "expert_gtp_weight_remat_size",
                                         "num_distributed_optimizer_instances"};

    for (size_t i = 0; i < DCPK_LAYOUT_N_SIZES; i++)
        if (strcmp(name, dcpk_layout_sizes[i].name) == 0)
            return true;
    for (size_t i = 0; i < DCPK_COUNT(others); i++)
        if (strcmp(name, others[i]) == 0)
            return true;
    return false;
}

const struct dcpk_value *dcpk_stage_arg_no(const struct dcpk_stage_arg *arg,
                                           const struct dcpk_value *attrs)
{
    const struct dcpk_value *v = dcpk_value_get(attrs, arg->name);
    bool on = true;

    if (dcpk_value_is_none(v) || (dcpk_value_as_bool(v, &on) && !on))
        return NULL;
    if (arg->is_flag)
        return dcpk_value_bool(false);
    return dcpk_value_none();
}
