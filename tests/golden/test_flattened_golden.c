/* SPDX-License-Identifier: Apache-2.0 */
/* test_flattened_golden.c - flattened tensors that Megatron 0.8 to 0.15 wrote have the values that
 * PROVENANCE.txt beside them gives: element i, counted row-major, is i. */
#include "formats/megatron/megatron_flattened.h"
#include "lib/ckpt/format.h"
#include "tests/element.h"
#include "tests/golden/samples.h"

#define N_MAX 24

/* Element i of the tensor is i for every i. */
static void check_counts(struct dcpk_checkpoint *ckpt, uint32_t index, const char *label)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[index];
    int64_t n_elems, n_seen = 0;
    bool seen[N_MAX] = {false};
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_EQ_INT(tensor->dtype, DCPK_F32, label);
    CHECK_OK(dcpk_shape_count(tensor->shape, tensor->rank, &n_elems, &err), label);
    CHECK(n_elems <= N_MAX, label);
    for (size_t c = tensor->first_chunk; c < tensor->first_chunk + tensor->n_chunks; c++) {
        struct dcpk_box box;
        int64_t n;

        dcpk_box_unpack(ckpt->chunks[c].span, tensor->rank, &box);
        CHECK_OK(dcpk_box_count(&box, &n, &err), label);
        for (int64_t i = 0; i < n; i++, n_seen++) {
            int64_t rest = i, element = 0, scale = 1;
            float value;

            for (int a = tensor->rank - 1; a >= 0; a--) {
                element += (box.offset[a] + rest % box.extent[a]) * scale;
                rest /= box.extent[a];
                scale *= tensor->shape[a];
            }
            CHECK(!seen[element], label);
            seen[element] = true;
            element_read(ckpt, &ckpt->chunks[c], i, &value, label);
            CHECK_EQ_INT(value, element, label);
        }
    }
    CHECK_EQ_INT(n_seen, n_elems, label);
}

static void logical_values_come_back(void **state)
{
    static const int64_t matrix[] = {4, 6}, bias[] = {10};
    static const struct {
        const char *key;
        const int64_t *shape;
        int rank;
    } tensors[] = {
        {"opt.exp_avg.w", matrix, 2},
        {"opt.exp_avg.tp", matrix, 2},
        {"opt.exp_avg.bias", bias, 1},
    };
    static const struct {
        const char *folder;
        bool has_record; /* mcore_data records the shape; 0.14 under torch 2.11 lost it */
        bool has_plain;  /* tensors with one axis are stored as they are */
    } cases[] = {
        {"torch_dist_0.8.0_torch2.1", true, true},   {"torch_dist_0.10.0_torch2.5", true, true},
        {"torch_dist_0.12.0_torch2.5", true, false}, {"torch_dist_0.14.0_torch2.11", false, false},
        {"torch_dist_0.15.0_torch2.5", true, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t k = 0; k < sizeof tensors / sizeof tensors[0]; k++) {
            struct dcpk_error err = DCPK_ERROR_INIT;
            struct sample sample = {.manifest = cases[i].folder};
            struct dcpk_checkpoint *ckpt;
            const struct dcpk_tensor *stored;
            const bool is_plain = cases[i].has_plain && tensors[k].rank == 1;
            char folder[256], label[256];
            uint32_t index;

            snprintf(folder, sizeof folder, "tiny_generations/%s", cases[i].folder);
            snprintf(label, sizeof label, "%s, %s", cases[i].folder, tensors[k].key);
            sample.folder = folder;
            ckpt = sample_open(&sample);
            stored = dcpk_checkpoint_tensor(ckpt, tensors[k].key);
            CHECK(stored != NULL, label);
            CHECK_EQ_INT(stored->rank, tensors[k].rank + !is_plain, label);
            CHECK_EQ_INT(stored->model_shape != NULL, cases[i].has_record && !is_plain, label);
            index = (uint32_t)(stored - ckpt->tensors);
            if (!is_plain)
                CHECK_OK(dcpk_megatron_add_flattened(ckpt, index, tensors[k].shape, tensors[k].rank,
                                                     &index, &err),
                         label);
            check_counts(ckpt, index, label);
            dcpk_checkpoint_close(ckpt);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(logical_values_come_back)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
