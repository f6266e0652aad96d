/* SPDX-License-Identifier: Apache-2.0 */
/* fake_model.h - models and their args, made by hand of what a test gives. */
#ifndef DCPK_TESTS_FAKE_MODEL_H
#define DCPK_TESTS_FAKE_MODEL_H

#include "lib/model/model.h"
#include "tests/fake_ckpt.h"

/* An attribute of args: an int, a list of that int alone, or a text. */
struct fake_arg {
    const char *name;
    int64_t value;
    const char *text; /* instead of value; "True", "False" and "None" are no texts */
    bool is_list;
};

static inline const struct dcpk_value *fake_arg_value(struct dcpk_arena *arena,
                                                      const struct fake_arg *arg)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_value *one;

    if (arg->text == NULL) {
        one = dcpk_value_int(arena, arg->value, &err);
        return arg->is_list ? dcpk_value_seq(arena, DCPK_V_LIST, &one, 1, &err) : one;
    }
    if (strcmp(arg->text, "None") == 0)
        return dcpk_value_none();
    if (strcmp(arg->text, "True") == 0 || strcmp(arg->text, "False") == 0)
        return dcpk_value_bool(arg->text[0] == 'T');
    return dcpk_value_str(arena, arg->text, &err);
}

/* An argparse.Namespace of these, up to one without a name. */
static inline const struct dcpk_value *fake_args(struct dcpk_arena *arena,
                                                 const struct fake_arg *args)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value_pair pairs[32];
    const struct dcpk_value *made;
    size_t n = 0;

    for (; args[n].name != NULL; n++) {
        CHECK(n < sizeof pairs / sizeof pairs[0], "room for args");
        pairs[n].key = dcpk_value_str(arena, args[n].name, &err);
        pairs[n].value = fake_arg_value(arena, &args[n]);
    }
    made = dcpk_value_namespace(arena, pairs, n, &err);
    CHECK(made != NULL, err.text);
    return made;
}

/* Args of a run of 4 layers on 4 data-parallel ranks. */
#define FAKE_ARGS                                                                                  \
    {"tensor_model_parallel_size", .value = 1}, {"pipeline_model_parallel_size", .value = 1},      \
        {"num_layers", .value = 4}, {"world_size", .value = 4},                                    \
    {                                                                                              \
        "transformer_impl", .text = "local"                                                        \
    }

/* An empty model of `ckpt`, which is borrowed and may be NULL. */
static inline struct dcpk_model *fake_model_new(struct dcpk_checkpoint *ckpt, const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *model = NULL;

    CHECK_OK(dcpk_model_new(ckpt, &model, &err), label);
    return model;
}

/* An empty model of a checkpoint that is one file of these bytes, read by `format`, which has
 * fake_probe. */
static inline struct dcpk_model *fake_model_open(const struct dcpk_format *format, const void *data,
                                                 size_t n_bytes, const char *label)
{
    const struct dcpk_format *const formats[] = {format, NULL};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_store *store;

    CHECK_OK(dcpk_store_new_memory("memory", &store, &err), label);
    CHECK_OK(dcpk_store_add_memory(store, "file", data, n_bytes, &err), label);
    CHECK_OK(dcpk_checkpoint_open(store, formats, NULL, &ckpt, &err), label);
    return fake_model_new(ckpt, label);
}

/* Frees a model of fake_model_open, and its checkpoint. */
static inline void fake_model_close(struct dcpk_model *model)
{
    struct dcpk_checkpoint *ckpt = model->ckpt;

    dcpk_model_free(model);
    dcpk_checkpoint_close(ckpt);
}

/* The parameter of that name, made when it is new. */
static inline uint32_t fake_model_param(struct dcpk_model *model, const char *name)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint32_t param;

    CHECK_OK(dcpk_model_param(model, name, &param, &err), name);
    return param;
}

/* Adds a bf16 weight of (rows, columns), of rank 1 of (rows), without pieces. Returns its
 * parameter. */
static inline uint32_t fake_model_weight(struct dcpk_model *model, const char *name, int rank,
                                         int64_t rows, int64_t columns)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    int64_t *shape = dcpk_arena_array(model->arena, 2, sizeof *shape, &err);
    const struct dcpk_model_tensor tensor = {.param = fake_model_param(model, name),
                                             .role = DCPK_WEIGHT,
                                             .dtype = DCPK_BF16,
                                             .rank = rank,
                                             .shape = shape};

    CHECK(shape != NULL, name);
    shape[0] = rows;
    shape[1] = columns;
    CHECK_OK(dcpk_model_add(model, &tensor, &err), name);
    return tensor.param;
}

/* Adds all of a stored tensor as that role of the parameter: in one piece, or with n_first rows in
 * the first of two. */
static inline void fake_model_stored(struct dcpk_model *model, uint32_t param, enum dcpk_role role,
                                     uint32_t source, int64_t n_first)
{
    const struct dcpk_tensor *stored = &model->ckpt->tensors[source];
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_piece *pieces = dcpk_arena_array(model->arena, 2, sizeof *pieces, &err);
    const struct dcpk_model_tensor tensor = {.param = param,
                                             .role = role,
                                             .dtype = stored->dtype,
                                             .rank = stored->rank,
                                             .shape = stored->shape,
                                             .pieces = pieces,
                                             .n_pieces = n_first == 0 ? 1 : 2};
    struct dcpk_box box;

    CHECK(pieces != NULL, stored->key);
    dcpk_box_whole(stored->shape, stored->rank, &box);
    for (size_t i = 0; i < tensor.n_pieces; i++) {
        box.offset[0] = i == 0 ? 0 : n_first;
        box.extent[0] = i + 1 < tensor.n_pieces ? n_first : stored->shape[0] - box.offset[0];
        CHECK_OK(dcpk_piece_make(model->arena, source, &box, &box, &pieces[i], &err), stored->key);
    }
    CHECK_OK(dcpk_model_add(model, &tensor, &err), stored->key);
}

#endif
