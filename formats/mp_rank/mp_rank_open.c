/* SPDX-License-Identifier: Apache-2.0 */
/* mp_rank_open.c - the folders of all ranks: none is missing, none is of another run. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/megatron/buckets/megatron_replay.h"
#include "formats/mp_rank/mp_rank_priv.h"
#include "formats/torch/item.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/numbered.h"
#include "lib/model/sizes.h"

/* ---- optimizers that are not distributed: state by numbers, which become names ---- */

/* The optimizer at hand, of a rank's file. */
struct numbered_reading {
    struct dcpk_mp_reading *r;
    struct dcpk_arena *arena;
    const struct dcpk_value *groups;
    struct dcpk_mp_tensors params; /* its file's tensors, less buffers */
    struct dcpk_numbered numbered; /* whose indices are these */
};

void dcpk_mp_optimizers(const struct dcpk_value *file, const struct dcpk_value *optimizers[2])
{
    const struct dcpk_value *all = dcpk_value_get(file, "optimizer");

    optimizers[0] = all;
    optimizers[1] = NULL;
    if (all == NULL || all->kind != DCPK_V_LIST)
        return;
    optimizers[0] = dcpk_value_at(all, 0);
    optimizers[1] = dcpk_value_at(all, 1);
}

const struct dcpk_value *dcpk_mp_inner(const struct dcpk_value *optimizer)
{
    const struct dcpk_value *inner = dcpk_value_get(optimizer, "optimizer");

    return inner != NULL ? inner : optimizer;
}

/* The parameters, in the order in which modules register them. */
static dcpk_status list_params(struct numbered_reading *o, const struct dcpk_value *file,
                               struct dcpk_error *err)
{
    struct dcpk_mp_tensors all;
    struct dcpk_numbered_param *params;

    if (dcpk_mp_list(o->r, file, o->arena, &all, err))
        return err->status;
    params = dcpk_arena_array(o->arena, all.n, sizeof *params, err);
    if (params == NULL)
        return err->status;
    o->params = (struct dcpk_mp_tensors){all.list, 0};
    for (size_t i = 0; i < all.n; i++) {
        if (all.list[i].is_buffer)
            continue;
        params[o->params.n] =
            (struct dcpk_numbered_param){all.list[i].local->rank, all.list[i].is_expert};
        o->params.list[o->params.n++] = all.list[i];
    }
    return dcpk_numbered_find(o->groups, params, o->params.n, o->arena, &o->numbered, err);
}

static const struct dcpk_mp_tensor *param_of(const struct numbered_reading *o,
                                             const struct dcpk_value *number)
{
    int64_t n = -1;

    if (!dcpk_value_as_int(number, &n) || n < 0 || (uint64_t)n >= o->numbered.n)
        return NULL;
    return &o->params.list[o->numbered.param_of[n]];
}

static dcpk_status add_state(struct numbered_reading *o, const struct dcpk_mp_tensor *param,
                             const char *state, const struct dcpk_value *value,
                             struct dcpk_error *err)
{
    const char *key;

    if (value->kind != DCPK_V_TENSOR)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "the optimizer's %.100s of '%.200s' is not a "
                         "tensor",
                         state, param->name);
    key = dcpk_arena_printf(o->arena, err, "optimizer.state.%s.%s", state, param->name);
    if (key == NULL)
        return err->status;
    return dcpk_mp_add(o->r, param, value->as.tensor, key, err);
}

/* The states of one number. A step is that of all (mp_rank.c, mp_load_common). */
static dcpk_status add_param(struct numbered_reading *o, const struct dcpk_value_pair *of,
                             struct dcpk_error *err)
{
    const struct dcpk_mp_tensor *param = param_of(o, of->key);

    if (param == NULL || of->value->kind != DCPK_V_DICT)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "it has state for a parameter that is in no "
                         "group");
    for (size_t i = 0; i < of->value->n; i++) {
        const char *state = dcpk_value_as_str(of->value->as.pairs[i].key);

        if (state == NULL || strchr(state, '.') != NULL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "a state of a parameter has no plain name");
        if (strcmp(state, "step") != 0 &&
            add_state(o, param, state, of->value->as.pairs[i].value, err))
            return err->status;
    }
    return DCPK_OK;
}

/* Masters of the parameters of group g that have 16 bits, in its order. */
static dcpk_status add_masters(struct numbered_reading *o, const struct dcpk_value *masters,
                               size_t g, struct dcpk_error *err)
{
    const struct dcpk_value *numbers = dcpk_value_get(dcpk_value_at(o->groups, g), "params");
    const struct dcpk_value *list = dcpk_value_at(masters, g);
    size_t n = 0;

    for (size_t i = 0; i < numbers->n; i++) {
        const struct dcpk_mp_tensor *param = param_of(o, numbers->as.items[i]);
        const struct dcpk_value *master = dcpk_value_at(list, n);

        if (param->local->dtype != DCPK_BF16 && param->local->dtype != DCPK_F16)
            continue;
        if (master == NULL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             DCPK_MP_MASTERS " has too few tensors for group %zu", g);
        if (add_state(o, param, "fp32_param", master, err))
            return err->status;
        n++;
    }
    if (list != NULL && list->kind == DCPK_V_LIST && list->n == n)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     DCPK_MP_MASTERS " does not have %zu tensors for group %zu", n, g);
}

static dcpk_status read_optimizer(struct numbered_reading *o, const struct dcpk_value *file,
                                  const struct dcpk_value *optimizer, struct dcpk_error *err)
{
    const struct dcpk_value *inner = dcpk_mp_inner(optimizer);
    const struct dcpk_value *states = dcpk_value_get(inner, "state");
    const struct dcpk_value *masters = dcpk_value_get(optimizer, DCPK_MP_MASTERS);

    if (states == NULL || states->kind != DCPK_V_DICT)
        return DCPK_OK;
    o->groups = dcpk_value_get(inner, "param_groups");
    if (list_params(o, file, err))
        return err->status;
    for (size_t i = 0; i < states->n; i++)
        if (add_param(o, &states->as.pairs[i], err))
            return err->status;
    for (size_t g = 0; masters != NULL && g < o->groups->n; g++)
        if (add_masters(o, masters, g, err))
            return err->status;
    return DCPK_OK;
}

/*
 * Adds the state of a rank's optimizers that are not distributed, as
 * optimizer.state.<state>.<weight>. Nothing for a file without. Errors: DCPK_EUNSUPPORTED where its
 * numbers cannot become names.
 */
static dcpk_status add_optimizers(struct dcpk_mp_reading *r, const struct dcpk_value *file,
                                  struct dcpk_arena *arena, struct dcpk_error *err)
{
    struct numbered_reading o = {.r = r, .arena = arena};
    const struct dcpk_value *optimizers[2];

    dcpk_mp_optimizers(file, optimizers);
    for (size_t i = 0; i < 2; i++)
        if (optimizers[i] != NULL && read_optimizer(&o, file, optimizers[i], err))
            return err->status;
    return DCPK_OK;
}

#define NAME_BYTES DCPK_MP_NAME_BYTES

/* ---- names of folders ---- */

/* "mp_rank_00", "mp_rank_00_001", "mp_rank_00_001_003": the stage where there are several, then the
 * expert-parallel rank (FORMAT.md 1). */
void dcpk_mp_name_folder(const struct dcpk_cut *cut, const struct dcpk_mp_rank *at,
                         char name[DCPK_MP_NAME_BYTES])
{
    int n = snprintf(name, NAME_BYTES, DCPK_MP_FOLDER "%02" PRId64, at->tp);

    if (cut->pp > 1)
        n += snprintf(name + n, NAME_BYTES - (size_t)n, "_%03" PRId64, at->pp);
    if (cut->ep > 1)
        snprintf(name + n, NAME_BYTES - (size_t)n, "_%03" PRId64, at->ep);
}

int64_t dcpk_mp_first_rank(const struct dcpk_cut *cut, int64_t n_data_parallel,
                           const struct dcpk_mp_rank *at)
{
    if (at->tp >= cut->tp || at->pp >= cut->pp || at->ep >= cut->ep)
        return -1;
    for (int64_t d = 0; d < n_data_parallel && d < cut->ep; d++)
        if ((at->tp + cut->tp * d) / cut->etp % cut->ep == at->ep)
            return at->tp + cut->tp * d;
    return cut->ep == 1 ? at->tp : -1;
}

static bool has_rank(const struct dcpk_mp_reading *r, const struct dcpk_mp_rank *at)
{
    return dcpk_mp_first_rank(&r->cut, r->n_data_parallel, at) >= 0;
}

/* True for the name of a rank's folder. */
static bool is_folder(const struct dcpk_mp_reading *r, const char *name)
{
    const char *text = name + strlen(DCPK_MP_FOLDER);
    char whole[NAME_BYTES];
    struct dcpk_mp_rank at = {.tp = dcpk_take_number(&text)};

    if (r->cut.pp > 1 && *text == '_') {
        text++;
        at.pp = dcpk_take_number(&text);
    }
    if (r->cut.ep > 1 && *text == '_') {
        text++;
        at.ep = dcpk_take_number(&text);
    }
    if (at.tp < 0 || at.pp < 0 || at.ep < 0 || !has_rank(r, &at))
        return false;
    dcpk_mp_name_folder(&r->cut, &at, whole);
    return strcmp(name, whole) == 0;
}

/* Folders of ranks, sorted. Owned: dcpk_free(all). */
struct folders {
    char **all;
    char *const *first; /* of the n, in all */
    size_t n;
};

static dcpk_status list_folders(struct dcpk_store *store, struct folders *folders,
                                struct dcpk_error *err)
{
    size_t n = 0, at = 0;

    *folders = (struct folders){0};
    if (dcpk_store_list(store, &folders->all, &n, err))
        return err->status;
    while (at < n && !dcpk_starts_with(folders->all[at], DCPK_MP_FOLDER))
        at++;
    folders->first = folders->all + at;
    while (at + folders->n < n && dcpk_starts_with(folders->first[folders->n], DCPK_MP_FOLDER))
        folders->n++;
    return DCPK_OK;
}

/* The file `name` of a rank's folder; NULL, where it may be: there is none. */
static dcpk_status find_file(const struct dcpk_mp_reading *r, const char *name, bool may_lack,
                             struct dcpk_source **source, struct dcpk_error *err)
{
    char path[2 * NAME_BYTES], folder[NAME_BYTES];
    enum dcpk_path_kind kind;

    *source = NULL;
    dcpk_mp_name_folder(&r->cut, &r->at, folder);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (dcpk_store_look(r->rank.ckpt->store, path, &kind, err))
        return err->status;
    if (kind == DCPK_PATH_FILE)
        return dcpk_store_find(r->rank.ckpt->store, path, source, err);
    if (may_lack)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EFORMAT,
                     "there is no '%s', and by args the run has tensor %" PRId64
                     ", pipeline %" PRId64 ", expert parallelism %" PRId64
                     ": copy the folders of all ranks",
                     path, r->cut.tp, r->cut.pp, r->cut.ep);
}

/* ---- args ---- */

/*
 * The process that wrote the file, by its args, has the folder's place among the ranks. One process
 * of number 0 may have written all of them (tools/checkpoint/saver_base.py of core 0.15).
 */
static dcpk_status check_writer(const struct dcpk_mp_reading *r, const struct dcpk_value *attrs,
                                struct dcpk_error *err)
{
    struct dcpk_grid grid;
    struct dcpk_coords at;
    int64_t rank, world;

    dcpk_layout_read(attrs, &grid);
    grid.is_tp_pp_dp = dcpk_value_is_true(attrs, "use_tp_pp_dp_mapping");
    grid = dcpk_grid_full(&grid);
    if (!dcpk_value_as_int(dcpk_value_get(attrs, "rank"), &rank) ||
        !dcpk_value_as_int(dcpk_value_get(attrs, "world_size"), &world) || rank < 1 ||
        rank >= world || dcpk_grid_ranks(&grid) != world)
        return DCPK_OK; /* not known */
    at = dcpk_grid_coords(&grid, rank);
    if (at.tp == r->at.tp && at.pp == r->at.pp && (r->cut.ep == 1 || at.ep == r->at.ep))
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EFORMAT,
                     "it is the file of another folder: by its args rank %" PRId64
                     " wrote it, tensor %" PRId64 ", pipeline %" PRId64
                     ", expert-parallel %" PRId64,
                     rank, at.tp, at.pp, at.ep);
}

static dcpk_status check_args(const struct dcpk_mp_reading *r, const struct dcpk_value *file,
                              struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(dcpk_value_get(file, "args"));
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = {
        {"tensor_model_parallel_size", r->cut.tp},
        {"pipeline_model_parallel_size", r->cut.pp},
        {"expert_model_parallel_size", r->cut.ep},
    };

    for (size_t i = 0; i < DCPK_COUNT(sizes); i++) {
        const int64_t size = dcpk_value_int_or(attrs, sizes[i].name, 1);

        if (size != sizes[i].size && !(i == 2 && r->cut.n_experts == 0))
            return dcpk_fail(err, DCPK_EFORMAT,
                             "its args.%s is %" PRId64 ", and that of rank 0 %" PRId64
                             ": the folders are of two runs",
                             sizes[i].name, size, sizes[i].size);
    }
    if (!dcpk_value_same(dcpk_value_get(file, "iteration"), r->iteration))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "its iteration is not that of rank 0: the folders are of two saves");
    return check_writer(r, attrs, err);
}

static dcpk_status take_args(struct dcpk_mp_reading *r, const struct dcpk_value *file,
                             struct dcpk_error *err)
{
    const struct dcpk_value *args = dcpk_value_get(file, "args"), *attrs = dcpk_value_attrs(args);

    if (dcpk_cut_read_ranks(args, r->rank.arena, &r->cut, err))
        return err->status;
    if (r->cut.tp % r->cut.etp != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "args.expert_tensor_parallel_size %" PRId64
                         " does not divide tensor parallelism %" PRId64
                         ": ranks of such a run have the same folders",
                         r->cut.etp, r->cut.tp);
    if (!dcpk_value_as_int(dcpk_value_get(attrs, "world_size"), &r->n_data_parallel))
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "args.world_size is not set");
    r->n_data_parallel /= r->cut.tp * r->cut.pp;
    r->iteration = dcpk_value_get(file, "iteration");
    /* MC/transformer/mlp.py@0.19.0 gated_linear_unit; MT/arguments.py: --quick-geglu sets it. */
    r->is_gated = dcpk_value_is_true(attrs, "swiglu") || dcpk_value_is_true(attrs, "quick_geglu") ||
                  dcpk_value_is_true(attrs, "gated_linear_unit");
    r->state->tp = r->cut.tp;
    return DCPK_OK;
}

/* ---- objects ---- */

static dcpk_status add_object(struct dcpk_mp_reading *r, const char *key,
                              const struct dcpk_place *place, struct dcpk_error *err)
{
    const struct dcpk_object object = {key, *place};

    if (key == NULL)
        return err->status;
    return dcpk_checkpoint_add_object(r->rank.ckpt, &object, err);
}

/* RNG states of a rank, as a 3D-parallel checkpoint keeps them. Without bytes of their own: they
 * are a part of the file. */
static dcpk_status add_rng(struct dcpk_mp_reading *r, const struct dcpk_value *file,
                           struct dcpk_error *err)
{
    const struct dcpk_place place = {.file = r->rank.number};
    const char *key = dcpk_arena_printf(
        r->rank.ckpt->arena, err, "rng_state/shard_%" PRId64 ".%" PRId64 "_%" PRId64 ".%" PRId64,
        r->at.pp, r->at.tp, r->cut.pp, r->cut.tp);

    if (key == NULL || dcpk_value_is_none(dcpk_value_get(file, "rng_state")) ||
        dcpk_checkpoint_object(r->rank.ckpt, key) != NULL) /* of another expert-parallel rank */
        return err->status;
    return add_object(r, key, &place, err);
}

/* The number of the ranks of an optimizer's buckets as they number themselves
 * (formats/megatron/buckets/megatron_replay.c, find_rank). */
static int64_t group_number(const struct dcpk_mp_reading *r, const struct dcpk_value *args,
                            bool is_expert)
{
    if (!is_expert)
        return r->at.tp + r->cut.tp * r->at.pp;
    if (dcpk_replay_rules_find(args)->stage_before_expert)
        return r->at.tp % r->cut.etp + r->cut.etp * (r->at.pp + r->cut.pp * r->at.ep);
    return r->at.tp % r->cut.etp + r->cut.etp * (r->at.ep + r->cut.ep * r->at.pp);
}

/* The buckets of one optimizer, and its groups next to them. */
static dcpk_status add_buckets(struct dcpk_mp_reading *r, const struct dcpk_value *file,
                               uint32_t model_file, bool is_expert, struct dcpk_error *err)
{
    const struct dcpk_place groups = {.file = model_file};
    const struct dcpk_place all = {
        .file = r->rank.number, .n_bytes = dcpk_source_bytes(r->rank.ckpt->files[r->rank.number])};
    const char *start = dcpk_arena_printf(
        r->rank.ckpt->arena, err, "%soptimizer.distributed.dp_group_idx_%" PRId64,
        is_expert ? "chained_1." : "", group_number(r, dcpk_value_get(file, "args"), is_expert));

    if (start == NULL)
        return err->status;
    r->state->has_buckets = true;
    if (add_object(r, dcpk_arena_printf(r->rank.ckpt->arena, err, "%s%s", start, DCPK_MP_BUCKETS),
                   &all, err))
        return err->status;
    return add_object(r, dcpk_arena_printf(r->rank.ckpt->arena, err, "%s%s", start, DCPK_MP_GROUPS),
                      &groups, err);
}

/* A distributed optimizer leaves its state to a second file. */
static dcpk_status add_distributed(struct dcpk_mp_reading *r, const struct dcpk_value *file,
                                   struct dcpk_arena *arena, struct dcpk_error *err)
{
    const uint32_t model_file = r->rank.number;
    const struct dcpk_value *optimizers[2], *value;
    struct dcpk_source *source;
    bool may_lack;

    dcpk_mp_optimizers(file, optimizers);
    may_lack = optimizers[0] == NULL || r->at.ep > 0 ||
               dcpk_value_get(dcpk_mp_inner(optimizers[0]), "state") != NULL;
    if (find_file(r, DCPK_MP_OPTIM, may_lack, &source, err) || source == NULL ||
        dcpk_rank_reading_open(&r->rank, source, dcpk_mp_is_known, arena, &value, err))
        return err->status;
    if (value->kind != DCPK_V_LIST)
        return add_buckets(r, file, model_file, false, err);
    for (size_t i = 0; i < value->n && i < 2; i++)
        if (value->as.items[i]->kind == DCPK_V_DICT && value->as.items[i]->n > 0 &&
            add_buckets(r, file, model_file, i == 1, err))
            return err->status;
    return DCPK_OK;
}

/* ---- files ---- */

static dcpk_status add_weights(struct dcpk_mp_reading *r, const struct dcpk_value *file,
                               struct dcpk_arena *arena, struct dcpk_error *err)
{
    struct dcpk_mp_tensors tensors;

    if (dcpk_mp_list(r, file, arena, &tensors, err))
        return err->status;
    for (size_t i = 0; i < tensors.n; i++)
        if (dcpk_mp_add(r, &tensors.list[i], tensors.list[i].local, tensors.list[i].name, err))
            return err->status;
    if (add_rng(r, file, err))
        return err->status;
    return add_distributed(r, file, arena, err);
}

/* The file of the rank at hand; once more for its optimizer, after all weights. */
static dcpk_status read_rank(struct dcpk_mp_reading *r, bool again, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_source *source = NULL;
    const struct dcpk_value *file;

    if (find_file(r, DCPK_MP_MODEL, false, &source, err) == DCPK_OK &&
        dcpk_rank_reading_open(&r->rank, source, dcpk_mp_is_known, arena, &file, err) == DCPK_OK) {
        if (again)
            (void)add_optimizers(r, file, arena, err);
        else if (check_args(r, file, err) == DCPK_OK)
            (void)add_weights(r, file, arena, err);
        if (err->status != DCPK_OK)
            dcpk_context(err, "reading '%s'", dcpk_source_name(source));
    }
    dcpk_arena_free(arena);
    return err->status;
}

static dcpk_status read_ranks(struct dcpk_mp_reading *r, bool again, struct dcpk_error *err)
{
    struct dcpk_mp_rank *at = &r->at;

    for (at->pp = 0; at->pp < r->cut.pp; at->pp++)
        for (at->ep = 0; at->ep < r->cut.ep; at->ep++)
            for (at->tp = 0; at->tp < r->cut.tp; at->tp++)
                if (has_rank(r, at) && read_rank(r, again, err))
                    return err->status;
    return DCPK_OK;
}

/* The first folder's args give the ranks, and all folders are theirs. */
static dcpk_status read_first(struct dcpk_mp_reading *r, const struct folders *folders,
                              struct dcpk_error *err)
{
    char path[NAME_BYTES + sizeof DCPK_MP_MODEL];
    struct dcpk_item_range range;
    struct dcpk_source *source;
    const struct dcpk_value *file;

    if (folders->n == 0 ||
        snprintf(path, sizeof path, "%s/" DCPK_MP_MODEL, folders->first[0]) >= (int)sizeof path)
        return dcpk_fail(err, DCPK_EFORMAT, "there is no '" DCPK_MP_FOLDER "00/" DCPK_MP_MODEL "'");
    if (dcpk_store_find(r->rank.ckpt->store, path, &source, err))
        return err->status;
    range = dcpk_item_whole(source);
    if (dcpk_item_read_known(&range, dcpk_mp_is_known, r->rank.arena, &file, NULL, err) ||
        take_args(r, file, err)) {
        dcpk_context(err, "reading '%s'", path);
        return err->status;
    }
    for (size_t i = 0; i < folders->n; i++)
        if (!is_folder(r, folders->first[i]))
            return dcpk_fail(err, DCPK_EFORMAT,
                             "'%.200s' is no folder of a run of tensor %" PRId64
                             ", pipeline %" PRId64 ", expert parallelism %" PRId64
                             ", which args of rank 0 have: remove the folders of one of two runs",
                             folders->first[i], r->cut.tp, r->cut.pp, r->cut.ep);
    return DCPK_OK;
}

/* A state whose names are not known leaves the weights as they are. */
static dcpk_status read_optimizers(struct dcpk_mp_reading *r, struct dcpk_error *err)
{
    const struct dcpk_rank_moment weights = dcpk_rank_reading_moment(&r->rank);

    if (r->state->has_buckets || read_ranks(r, true, err) == DCPK_OK)
        return DCPK_OK;
    return dcpk_rank_reading_leave_optimizer(&r->rank, &weights, &r->state->optimizer_fault, err);
}

dcpk_status dcpk_mp_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    struct dcpk_mp_reading r = {.state = ckpt->state};
    struct folders folders = {0};

    r.rank.ckpt = ckpt;
    r.rank.files = &r.state->files;
    r.rank.arena = dcpk_arena_new();
    if (list_folders(ckpt->store, &folders, err) == DCPK_OK &&
        read_first(&r, &folders, err) == DCPK_OK && read_ranks(&r, false, err) == DCPK_OK &&
        read_optimizers(&r, err) == DCPK_OK)
        (void)dcpk_rank_reading_order(&r.rank, err);
    dcpk_free(folders.all);
    dcpk_rank_reading_release(&r.rank);
    dcpk_arena_free(r.rank.arena);
    return err->status;
}
