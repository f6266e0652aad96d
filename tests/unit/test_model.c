/* SPDX-License-Identifier: Apache-2.0 */
/* test_model.c - parameters, their tensors and further optimizer states by name. */
#include "tests/check.h"

#include "lib/model/model.h"

static const int64_t shape[] = {2};

static struct dcpk_model_tensor tensor_of(uint32_t param, enum dcpk_role role, const char *state)
{
    return (struct dcpk_model_tensor){
        .param = param, .role = role, .state = state, .dtype = DCPK_F32, .rank = 1, .shape = shape};
}

static void finds_states_by_name(void **state)
{
    static const struct {
        uint32_t param;
        enum dcpk_role role;
        const char *state;
    } added[] = {
        {0, DCPK_WEIGHT, NULL},      {1, DCPK_WEIGHT, NULL},     {0, DCPK_STATE, "momentum"},
        {1, DCPK_STATE, "sum"},      {0, DCPK_EXP_AVG, NULL},    {0, DCPK_STATE, "sum"},
        {1, DCPK_STATE, "momentum"}, {0, DCPK_STATE, "exp_inf"},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model_tensor tensor;
    struct dcpk_checkpoint ckpt = {.n_tensors = 0};
    struct dcpk_model *model = NULL;
    uint32_t param;

    (void)state;
    CHECK_OK(dcpk_model_new(&ckpt, &model, &err), "new");
    CHECK_OK(dcpk_model_param(model, "a", &param, &err), "a");
    CHECK_OK(dcpk_model_param(model, "b", &param, &err), "b");
    for (uint32_t i = 0; i < sizeof added / sizeof added[0]; i++) {
        tensor = tensor_of(added[i].param, added[i].role, added[i].state);
        tensor.next_state = 3; /* of the model that it comes from: means nothing here */
        CHECK_OK(dcpk_model_add(model, &tensor, &err), "add");
    }
    for (uint32_t i = 0; i < sizeof added / sizeof added[0]; i++)
        CHECK_EQ_INT(dcpk_model_find(model, added[i].param, added[i].role, added[i].state), i,
                     added[i].state != NULL ? added[i].state : "one a role");
    CHECK_EQ_INT(dcpk_model_find(model, 1, DCPK_STATE, "exp_inf"), DCPK_NO_TENSOR, "not b's");
    CHECK_EQ_INT(dcpk_model_find(model, 1, DCPK_MASTER, NULL), DCPK_NO_TENSOR, "no master");
    CHECK_EQ_INT(model->params[0].tensor[DCPK_STATE], 2, "the first of a list");
    CHECK_EQ_INT(model->tensors[2].next_state, 5, "the second");
    CHECK_EQ_INT(model->tensors[5].next_state, 7, "the last");
    CHECK_EQ_INT(model->tensors[7].next_state, DCPK_NO_TENSOR, "the end");
    tensor = tensor_of(0, DCPK_STATE, "sum");
    CHECK_FAILS(dcpk_model_add(model, &tensor, &err), DCPK_EFORMAT,
                "are both the state of parameter 'a'", "a second one of that name");
    dcpk_model_free(model);
}

/* What parameters are held against one by one is few. */
static void groups_are_few(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model model = {.arena = dcpk_arena_new()};
    const struct dcpk_value *group = dcpk_value_dict(model.arena, NULL, 0, &err);

    (void)state;
    for (int i = 0; i < DCPK_MAX_GROUPS; i++)
        CHECK_OK(dcpk_model_add_group(&model, group, &err), "group");
    CHECK_FAILS(dcpk_model_add_group(&model, group, &err), DCPK_EUNSUPPORTED, "1024", "one more");
    CHECK_EQ_INT(model.n_groups, DCPK_MAX_GROUPS, "as many as there were");
    dcpk_arena_free(model.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_states_by_name),
        cmocka_unit_test(groups_are_few),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
