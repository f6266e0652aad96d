/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_args.h - args of a Megatron run, made up of a few settings. */
#ifndef DCPK_TESTS_UNIT_MEGATRON_ARGS_H
#define DCPK_TESTS_UNIT_MEGATRON_ARGS_H

#include "lib/ckpt/value.h"

struct setting {
    const char *name;
    int64_t value;
    const char *text; /* instead of value; "True" is no text */
};

/* argparse.Namespace of the settings, up to one without a name. */
static inline const struct dcpk_value *make_args(struct dcpk_arena *arena,
                                                 const struct setting *settings)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value_pair pairs[32];
    size_t n = 0;

    for (; settings[n].name != NULL; n++) {
        pairs[n].key = dcpk_value_str(arena, settings[n].name, &err);
        if (settings[n].text == NULL)
            pairs[n].value = dcpk_value_int(arena, settings[n].value, &err);
        else if (strcmp(settings[n].text, "True") == 0)
            pairs[n].value = dcpk_value_bool(true);
        else
            pairs[n].value = dcpk_value_str(arena, settings[n].text, &err);
    }
    return dcpk_value_namespace(arena, pairs, n, &err);
}

/* Of a run of 4 layers on 4 data-parallel ranks. */
#define GOOD_ARGS                                                                                  \
    {"tensor_model_parallel_size", 1, NULL}, {"pipeline_model_parallel_size", 1, NULL},            \
        {"num_layers", 4, NULL}, {"world_size", 4, NULL},                                          \
    {                                                                                              \
        "transformer_impl", 0, "local"                                                             \
    }

#endif
