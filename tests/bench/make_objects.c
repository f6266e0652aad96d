/* SPDX-License-Identifier: Apache-2.0 */
/* make_objects.c - the non-tensor items of a synthetic checkpoint, taken from a golden. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch/item.h"
#include "lib/base/alloc.h"
#include "lib/ckpt/format.h"
#include "tests/bench/make_priv.h"

/* Modules of a layer that keep FP8 state under Transformer Engine. */
static const char *const modules[] = {"self_attention.linear_qkv", "self_attention.linear_proj",
                                      "mlp.linear_fc1", "mlp.linear_fc2"};

/* Add an object item; data is taken, also on failure. */
static dcpk_status add_blob(struct dcpk_making *m, const char *key, uint8_t *data, size_t n_bytes,
                            struct dcpk_error *err)
{
    struct dcpk_output *out = m->out;
    const char *kept = dcpk_arena_strdup(out->arena, key, err);
    const size_t n = out->n_payloads;
    uint32_t payload;
    dcpk_status st = kept == NULL
                         ? err->status
                         : dcpk_grow(&m->blobs, &m->blobs_capacity, n, sizeof *m->blobs, err);

    if (st == DCPK_OK)
        st = dcpk_output_add_payload(out, NULL, NULL, &payload, err);
    if (st != DCPK_OK) {
        dcpk_free(data);
        return st;
    }
    m->blobs[n] = (struct dcpk_blob){data, n_bytes};
    out->payloads[n].n_bytes = n_bytes;
    return dcpk_output_add_object(out, kept, payload, err);
}

/* Add a copy of an object of the golden under another key. */
static dcpk_status copy_object(struct dcpk_making *m, const char *from, const char *key,
                               struct dcpk_error *err)
{
    const struct dcpk_object *object = dcpk_checkpoint_object(m->golden, from);
    uint8_t *data;
    dcpk_status st;

    if (object == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "the golden has no object '%s'", from);
    data = dcpk_alloc((size_t)object->place.n_bytes, err);
    if (data == NULL)
        return err->status;
    st = dcpk_source_read(m->golden->files[object->place.file], object->place.offset_bytes, data,
                          (size_t)object->place.n_bytes, err);
    if (st != DCPK_OK) {
        dcpk_free(data);
        return st;
    }
    return add_blob(m, key, data, (size_t)object->place.n_bytes, err);
}

/* The objects that ranks write: FP8 state of each layer's modules, RNG and rerun states. */
dcpk_status dcpk_bench_describe_objects(struct dcpk_making *m, struct dcpk_error *err)
{
    char key[160], from[160];
    dcpk_status st = DCPK_OK;

    for (int64_t i = 0; i < m->sizes.layers; i++)
        for (size_t k = 0; k < sizeof modules / sizeof *modules && st == DCPK_OK; k++) {
            if (m->sizes.is_stacked)
                snprintf(key, sizeof key,
                         "decoder.layers.%s._extra_state/shard_%" PRId64 "_%" PRId64, modules[k], i,
                         m->sizes.layers);
            else
                snprintf(key, sizeof key, "decoder.layers.%" PRId64 ".%s._extra_state/shard_0_1", i,
                         modules[k]);
            st = copy_object(m, "decoder.layers.mlp.linear_fc2._extra_state/shard_0_4", key, err);
        }
    for (int r = 0; r < N_RANKS && st == DCPK_OK; r++) {
        snprintf(key, sizeof key, "rng_state/shard_%d.%d_2.2", r / N_TP, r % N_TP);
        st = copy_object(m, key, key, err);
        snprintf(from, sizeof from, "rerun_state_machine_state/shard_%d_%d", r, N_RANKS);
        if (st == DCPK_OK && !m->has_common_file)
            st = copy_object(m, from, from, err);
    }
    return st;
}

/* `attrs` with the model's sizes in place of the golden's. */
static const struct dcpk_value *resized_args(const struct dcpk_making *m,
                                             const struct dcpk_value *attrs, struct dcpk_error *err)
{
    const struct dcpk_bench_sizes *s = &m->sizes;
    const struct {
        const char *name;
        int64_t value;
    } changes[] = {
        {"num_layers", s->layers},
        {"encoder_num_layers", s->layers},
        {"hidden_size", s->hidden},
        {"ffn_hidden_size", s->ffn},
        {"num_attention_heads", s->heads},
        {"num_query_groups", s->groups},
        {"kv_channels", s->hidden / s->heads},
        {"padded_vocab_size", s->vocab},
        {"vocab_size", s->vocab - 1},
    };
    struct dcpk_arena *arena = m->out->arena;
    struct dcpk_value_pair *pairs = dcpk_arena_array(arena, attrs->n, sizeof *pairs, err);

    if (pairs == NULL)
        return NULL;
    for (size_t i = 0; i < attrs->n; i++) {
        pairs[i] = attrs->as.pairs[i];
        for (size_t c = 0; c < sizeof changes / sizeof *changes; c++) {
            const char *name = dcpk_value_as_str(pairs[i].key);

            if (name != NULL && strcmp(name, changes[c].name) == 0)
                pairs[i].value = dcpk_value_int(arena, changes[c].value, err);
        }
        if (pairs[i].value == NULL)
            return NULL;
    }
    return dcpk_value_namespace(arena, pairs, attrs->n, err);
}

/* The golden's common state with other args. */
static const struct dcpk_value *
resized_common(const struct dcpk_making *m, const struct dcpk_value *common, struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(dcpk_value_get(common, "args"));
    struct dcpk_arena *arena = m->out->arena;
    struct dcpk_value_pair *pairs;

    if (attrs == NULL) {
        dcpk_fail(err, DCPK_EFORMAT, "the golden's common state has no args");
        return NULL;
    }
    pairs = dcpk_arena_array(arena, common->n, sizeof *pairs, err);
    if (pairs == NULL)
        return NULL;
    for (size_t i = 0; i < common->n; i++) {
        const char *name = dcpk_value_as_str(common->as.pairs[i].key);

        pairs[i] = common->as.pairs[i];
        if (name != NULL && strcmp(name, "args") == 0)
            pairs[i].value = resized_args(m, attrs, err);
        if (pairs[i].value == NULL)
            return NULL;
    }
    return dcpk_value_dict(arena, pairs, common->n, err);
}

/* common.pt (B) or the item common_state/shard_0_1, a list of one dict (C). */
dcpk_status dcpk_bench_add_common(struct dcpk_making *m, struct dcpk_folder *folder,
                                  struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {.data = NULL};
    const struct dcpk_value *common = NULL;
    dcpk_status st = dcpk_checkpoint_load_common(m->golden, m->out->arena, &common, err);

    if (st != DCPK_OK)
        return st;
    common = resized_common(m, common, err);
    if (common != NULL && !m->has_common_file)
        common = dcpk_value_seq(m->out->arena, DCPK_V_LIST, &common, 1, err);
    if (common == NULL)
        return err->status;
    st = dcpk_item_encode(common, m->has_common_file ? "common" : "archive", 2, &bytes, err);
    if (st == DCPK_OK && m->has_common_file)
        st = dcpk_folder_put(folder, "common.pt", bytes.data, bytes.n_bytes, err);
    else if (st == DCPK_OK)
        return add_blob(m, "common_state/shard_0_1", bytes.data, bytes.n_bytes, err);
    dcpk_bytes_release(&bytes);
    return st;
}
