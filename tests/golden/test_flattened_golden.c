/* SPDX-License-Identifier: Apache-2.0 */
/* test_flattened_golden.c - flattened tensors that Megatron 0.8 to 0.15 wrote have the values that
 * PROVENANCE.txt beside them gives: element i, counted row-major, is i. What is written as
 * generation A is what Megatron wrote. */
#include "formats/megatron/megatron_flatten.h"
#include "kernels/kernels.h"
#include "lib/ckpt/format.h"
#include "lib/job/compare.h"
#include "tests/element.h"
#include "tests/golden/conversions.h"
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

/* The same tensors, by key and bit for bit. */
static void check_equal(struct dcpk_checkpoint *ours, struct dcpk_checkpoint *source,
                        const char *label)
{
    const struct dcpk_compare_options options = {
        .tensors_only = true, .env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 1}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_compare_report report;

    CHECK_OK(dcpk_compare_checkpoints(ours, source, &options, &report, &err), label);
    if (!report.equal)
        fail_msg("%s: %s", report.differences.first->name, label);
    CHECK(report.n_tensors >= 3 * report.n_params, label); /* master and two moments */
    dcpk_compare_release(&report);
}

static bool has_chunk(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor,
                      const int64_t *span)
{
    const size_t n_bytes = 2 * (size_t)tensor->rank * sizeof *span;

    for (size_t c = tensor->first_chunk; c < tensor->first_chunk + tensor->n_chunks; c++)
        if (memcmp(ckpt->chunks[c].span, span, n_bytes) == 0)
            return true;
    return false;
}

/* Keys, dtypes, shapes and chunks, of flattened tensors and of weights. */
static void check_same_form(const struct dcpk_checkpoint *ours,
                            const struct dcpk_checkpoint *source)
{
    CHECK_EQ_INT(ours->n_tensors, source->n_tensors, "tensors");
    for (size_t t = 0; t < source->n_tensors; t++) {
        const struct dcpk_tensor *want = &source->tensors[t];
        const struct dcpk_tensor *got = dcpk_checkpoint_tensor(ours, want->key);
        const bool is_state = strncmp(want->key, "optimizer.", strlen("optimizer.")) == 0;

        CHECK(got != NULL, want->key);
        CHECK_EQ_INT(got->dtype, want->dtype, want->key);
        CHECK_EQ_INT(got->rank, want->rank, want->key);
        CHECK(memcmp(got->shape, want->shape, (size_t)want->rank * sizeof *want->shape) == 0,
              want->key);
        CHECK_EQ_INT(got->n_chunks, want->n_chunks, want->key);
        for (size_t c = 0; c < want->n_chunks; c++)
            CHECK(has_chunk(ours, got, source->chunks[want->first_chunk + c].span), want->key);
        CHECK_EQ_INT(got->model_shape != NULL, is_state, want->key); /* mcore_data */
    }
}

/* From itself, and from what it was converted to. */
static void written_is_what_megatron_wrote(void **state)
{
    static const char sample[] = "torch_dist_a_dense_tp2pp2";
    const struct dcpk_grid mesh = {.tp = 2, .pp = 2};
    struct dcpk_checkpoint *source = open_at(sample_path(sample));
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    CHECK_OK(convert_as(sample_path(sample), scratch("fsdp"), &(struct wish){.to = "fsdp_dtensor"},
                        &err),
             sample);
    for (int from_fsdp = 0; from_fsdp < 2; from_fsdp++) {
        const char *name = from_fsdp ? "back" : "anew";
        struct dcpk_convert_options options = {
            .to = dcpk_format_find("torch_dist"),
            .in = from_fsdp ? scratch("fsdp") : sample_path(sample),
            .env = {.formats = dcpk_formats, .kernels = dcpk_host_kernel_sets[0], .n_threads = 1},
            .rules = {.impl = DCPK_IMPL_LOCAL},
            .target = {.generation = "A", .mesh = mesh}};
        struct dcpk_checkpoint *ours;
        char in[4096], out[4096];

        snprintf(in, sizeof in, "%s", options.in);
        snprintf(out, sizeof out, "%s", scratch(name));
        options.in = in;
        options.out = out;
        CHECK_OK(run_conversion(&options, &err), name);
        ours = open_at(out);
        CHECK(strcmp(ours->generation, "A") == 0, name);
        check_same_form(ours, source);
        check_equal(ours, source, name);
        dcpk_checkpoint_close(ours);
    }
    dcpk_checkpoint_close(source);
}

/* Experts, projections in parts, fp32 weights that are their own masters, layers apart, tied
 * embeddings: flattened, they hold the same. */
static void flattened_is_equal(void **state)
{
    static const char *const names[] = {"torch_dist_c_moe_ep2pp2", "torch_dist_c_mamba",
                                        "torch_dist_c_fp32_dp1",   "torch_dist_c_per_layer",
                                        "torch_dist_c_tied",       "torch_dist_c_mtp"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct wish wish = {.to = "torch_dist", .generation = "A"};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_checkpoint *ours, *source;

        CHECK_OK(convert_as(sample_path(names[i]), scratch(names[i]), &wish, &err), names[i]);
        ours = open_at(scratch(names[i]));
        source = open_at(sample_path(names[i]));
        CHECK(strcmp(ours->generation, "A") == 0, names[i]);
        check_equal(ours, source, names[i]);
        dcpk_checkpoint_close(ours);
        dcpk_checkpoint_close(source);
    }
}

/* Without enough memory an error, never a leak and never a folder that looks whole. */
static void every_failed_allocation_is_an_error(void **state)
{
    const struct wish wish = {.to = "torch_dist", .generation = "A"};
    uint64_t n = 1;
    bool failed = true;

    (void)state;
    for (; failed && n < 1000000; n += n < 100 ? 7 : 197) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        dcpk_status st;

        dcpk_alloc_fail_nth(n);
        st = convert_as(sample_path("torch_dist_c_tied"), scratch("fault"), &wish, &err);
        dcpk_alloc_fail_nth(0);
        failed = st != DCPK_OK;
        if (has_only_no_tracker(&err))
            scratch_clean("fault");
        else if (failed)
            CHECK(access(scratch("fault/iter_0000004"), F_OK) != 0, err.text);
    }
    CHECK(!failed, "it passes in the end");
    CHECK(n > 100, "allocations were made to fail");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logical_values_come_back),
        cmocka_unit_test_setup_teardown(written_is_what_megatron_wrote, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(flattened_is_equal, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(every_failed_allocation_is_an_error, scratch_setup,
                                        scratch_teardown)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
