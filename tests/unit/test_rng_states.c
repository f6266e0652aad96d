/* SPDX-License-Identifier: Apache-2.0 */
/* test_rng_states.c - what counts as the RNG states of a rank. */
#include "tests/check.h"

#include <string.h>

#include "lib/model/model.h"

static const int64_t bytes_shape[] = {16}, rows_shape[] = {4, 4}, large_shape[] = {65537};
static const struct dcpk_value_tensor
    bytes_tensor = {.dtype = DCPK_U8, .rank = 1, .shape = bytes_shape, .n_bytes = 16},
    rows_tensor = {.dtype = DCPK_U8, .rank = 2, .shape = rows_shape, .n_bytes = 16},
    float_tensor = {.dtype = DCPK_F32, .rank = 1, .shape = bytes_shape, .n_bytes = 64},
    no_tensor = {.dtype = DCPK_U8, .rank = 1, .shape = bytes_shape, .n_bytes = 0},
    large_tensor = {.dtype = DCPK_U8, .rank = 1, .shape = large_shape, .n_bytes = 65537};

static const struct dcpk_value number = {.kind = DCPK_V_INT, .as.i = 5};
static const struct dcpk_value bytes = {.kind = DCPK_V_TENSOR, .as.tensor = &bytes_tensor};
static const struct dcpk_value rows = {.kind = DCPK_V_TENSOR, .as.tensor = &rows_tensor};
static const struct dcpk_value floats = {.kind = DCPK_V_TENSOR, .as.tensor = &float_tensor};
static const struct dcpk_value nothing = {.kind = DCPK_V_TENSOR, .as.tensor = &no_tensor};
static const struct dcpk_value large = {.kind = DCPK_V_TENSOR, .as.tensor = &large_tensor};
static const struct dcpk_value object = {.kind = DCPK_V_OBJECT};
static const struct dcpk_value *const one_number[] = {&number};
static const struct dcpk_value tuple = {.kind = DCPK_V_TUPLE, .n = 1, .as.items = one_number};
static const struct dcpk_value list = {.kind = DCPK_V_LIST, .n = 1, .as.items = one_number};
static const struct dcpk_value no_tuple = {.kind = DCPK_V_TUPLE};
static const struct dcpk_value no_dict = {.kind = DCPK_V_DICT};

static const struct dcpk_value tracker_name = {.kind = DCPK_V_STR, .n = 1, .as.str = "a"};
static const struct dcpk_value_pair of_bytes[] = {{&tracker_name, &bytes}},
                                    of_objects[] = {{&tracker_name, &object}},
                                    of_lists[] = {{&tracker_name, &list}},
                                    of_numbers[] = {{&number, &bytes}};
static const struct dcpk_value trackers = {.kind = DCPK_V_DICT, .n = 1, .as.pairs = of_bytes},
                               generators = {.kind = DCPK_V_DICT, .n = 1, .as.pairs = of_objects},
                               lists = {.kind = DCPK_V_DICT, .n = 1, .as.pairs = of_lists},
                               unnamed = {.kind = DCPK_V_DICT, .n = 1, .as.pairs = of_numbers};

/* The fields of get_rng_state, megatron/training/checkpointing.py, all releases. */
static const char *const names[] = {"random_rng_state", "np_rng_state", "torch_rng_state",
                                    "cuda_rng_state", "rng_tracker_states"};
static const struct dcpk_value *const proper[] = {&tuple, &tuple, &bytes, &bytes, &trackers};

static const struct {
    const char *label, *field;      /* the field that is another than the proper one */
    const struct dcpk_value *value; /* NULL: it is not there */
    const char *fault;              /* a part of the reason; NULL: understood */
} cases[] = {
    {"proper", "torch_rng_state", &bytes, NULL},
    {"no tracker", "rng_tracker_states", &no_dict, NULL},
    {"generators", "rng_tracker_states", &generators, NULL},
    {"one more", "mine", &number, NULL},
    {"bytes more", "mine", &bytes, NULL},
    {"without Python's", "random_rng_state", NULL, "without random_rng_state"},
    {"without NumPy's", "np_rng_state", NULL, "without np_rng_state"},
    {"without torch's", "torch_rng_state", NULL, "without torch_rng_state"},
    {"without CUDA's", "cuda_rng_state", NULL, "without cuda_rng_state"},
    {"without trackers", "rng_tracker_states", NULL, "without rng_tracker_states"},
    {"Python's is a list", "random_rng_state", &list, "random_rng_state"},
    {"Python's is empty", "random_rng_state", &no_tuple, "random_rng_state"},
    {"NumPy's is a number", "np_rng_state", &number, "np_rng_state"},
    {"torch's is a tuple", "torch_rng_state", &tuple, "torch_rng_state"},
    {"floats", "torch_rng_state", &floats, "torch_rng_state"},
    {"rows", "cuda_rng_state", &rows, "cuda_rng_state"},
    {"no bytes", "cuda_rng_state", &nothing, "cuda_rng_state"},
    {"many bytes", "cuda_rng_state", &large, "cuda_rng_state"},
    {"trackers in a list", "rng_tracker_states", &list, "rng_tracker_states"},
    {"a tracker is a list", "rng_tracker_states", &lists, "rng_tracker_states"},
    {"a tracker is unnamed", "rng_tracker_states", &unnamed, "rng_tracker_states"},
    {"a dict more", "mine", &no_dict, "values in values"},
    {"a list more", "mine", &list, "values in values"},
    {"floats more", "mine", &floats, "values in values"},
    {"no name", "", &number, "no name"},
};

#define N_NAMES (sizeof names / sizeof names[0])

/* The proper states but for one field, as a list of one rank or of a proper one and it. */
static const char *judge(const char *field, const struct dcpk_value *value, size_t n_ranks)
{
    struct dcpk_value keys[N_NAMES + 1];
    struct dcpk_value_pair pairs[N_NAMES + 1], good[N_NAMES];
    struct dcpk_value rank = {.kind = DCPK_V_DICT, .as.pairs = pairs};
    const struct dcpk_value other = {.kind = DCPK_V_DICT, .n = N_NAMES, .as.pairs = good};
    const struct dcpk_value *const ranks[] = {n_ranks > 1 ? &other : &rank, &rank};
    const struct dcpk_value states = {.kind = DCPK_V_LIST, .n = n_ranks, .as.items = ranks};
    bool is_more = true;

    for (size_t i = 0; i <= N_NAMES; i++) {
        const char *name = i < N_NAMES ? names[i] : field;
        const bool is_it = strcmp(name, field) == 0;

        keys[i] = (struct dcpk_value){.kind = DCPK_V_STR, .n = strlen(name), .as.str = name};
        if (i < N_NAMES)
            good[i] = (struct dcpk_value_pair){&keys[i], proper[i]};
        if (is_it && (value == NULL || !is_more))
            continue;
        pairs[rank.n++] = (struct dcpk_value_pair){&keys[i], is_it ? value : proper[i]};
        is_more = is_more && !is_it;
    }
    return dcpk_rng_states_fault(&states);
}

static void judges_every_field(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t n_ranks = 1; n_ranks <= 2; n_ranks++) {
            const char *fault = judge(cases[i].field, cases[i].value, n_ranks);

            if (cases[i].fault == NULL)
                CHECK(fault == NULL, cases[i].label);
            else
                CHECK(fault != NULL && strstr(fault, cases[i].fault) != NULL, cases[i].label);
        }
}

static void wants_a_list_of_dicts(void **state)
{
    static const struct dcpk_value empty = {.kind = DCPK_V_LIST};

    (void)state;
    CHECK(dcpk_rng_states_fault(&empty) != NULL, "no rank");
    CHECK(dcpk_rng_states_fault(&list) != NULL, "a list of numbers");
    CHECK(dcpk_rng_states_fault(&tuple) != NULL, "a tuple");
    CHECK(dcpk_rng_states_fault(&no_dict) != NULL, "a dict");
    CHECK(dcpk_rng_states_fault(&number) != NULL, "a number");
}

/* A dict may be shared by many ranks: one that is large is refused before it is looked into. */
static void refuses_too_many_fields(void **state)
{
    const struct dcpk_value rank = {.kind = DCPK_V_DICT, .n = SIZE_MAX, .as.pairs = NULL};
    const struct dcpk_value *const ranks[] = {&rank};
    const struct dcpk_value states = {.kind = DCPK_V_LIST, .n = 1, .as.items = ranks};

    (void)state;
    CHECK(dcpk_rng_states_fault(&states) != NULL, "fields without end");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(judges_every_field),
                                       cmocka_unit_test(wants_a_list_of_dicts),
                                       cmocka_unit_test(refuses_too_many_fields)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
