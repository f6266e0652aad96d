/* SPDX-License-Identifier: Apache-2.0 */
/* test_convert_prop.c - random outputs made of random pieces: every byte as a naive loop says, for
 * any threads and memory. */
#include "lib/base/digest.h"
#include "lib/write/writing.h"
#include "tests/out_case.h"
#include "tests/unit/scratch.h"
#include "tests/write_all.h"

static const struct { /* how each round is run */
    int n_threads;
    uint64_t memory_bytes;
    bool plain;          /* which device */
    uint64_t unit_bytes; /* 0: all in one go; else in units of this size, the second half first */
} runs[] = {
    {1, 16 << 20, true, 0},       {1, 0, false, 0},
    {2, 16 << 20, false, 300000}, {7, 16 << 20, false, 0},
    {15, 16 << 20, false, 5000},  {4, UINT64_C(1) << 30, false, 1 << 20},
};

static void make_round(struct out_case *r, uint64_t seed)
{
    const bool large = seed % 8 == 7;
    const size_t n = large ? 1 : (size_t)(seed % OUT_MAX);
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint32_t payload;

    snprintf(r->label, sizeof r->label, "seed %" PRIu64, seed);
    r->seed = seed;
    fake_add_object(&r->fake, "object", large ? 5 << 20 : 50);
    CHECK_OK(dcpk_output_new(NULL, &fake_format, &r->out, &err), r->label);
    for (size_t t = 0; t < n; t++)
        out_make_tensor(r, t, large);
    r->ckpt = fake_open(&r->fake, r->label);
    r->out->source = r->ckpt;
    for (uint64_t p = 0; p < seed % 4; p++) {
        CHECK_OK(dcpk_output_add_payload(r->out, NULL, p == 1 ? &r->ckpt->objects[0] : NULL,
                                         &payload, &err),
                 r->label);
        CHECK_OK(dcpk_output_add_object(r->out, "object", payload, &err), r->label);
    }
    CHECK_OK(dcpk_plan_build(r->out, &err), r->label);
}

/* The bytes that an output file must have. */
static uint8_t *want_file(const struct out_case *r, uint32_t file)
{
    const struct dcpk_output *out = r->out;
    uint8_t *bytes = calloc(1, (size_t)out->files[file].n_bytes + 1);
    struct dcpk_error err = DCPK_ERROR_INIT;

    for (size_t p = 0; p < out->n_payloads; p++) {
        const struct dcpk_out_payload *payload = &out->payloads[p];

        for (uint64_t i = 0; payload->file == file && i < payload->n_bytes; i++)
            bytes[payload->offset_bytes + i] =
                payload->source == NULL
                    ? (uint8_t)(p + i)
                    : r->fake.files[0].data[payload->source->place.offset_bytes + i];
    }
    for (size_t c = 0; c < out->n_chunks; c++) {
        const struct dcpk_out_chunk *chunk = &out->chunks[c];
        const struct dcpk_out_tensor *tensor = &out->tensors[chunk->tensor];
        const size_t elem_bytes = dcpk_dtype_bytes(tensor->dtype);
        uint8_t *item = bytes + chunk->offset_bytes, *data = item + chunk->lead_bytes;
        struct dcpk_box box;

        if (chunk->file != file)
            continue;
        dcpk_box_unpack(chunk->span, tensor->rank, &box);
        for (int64_t i = 0; i < fake_elems(box.extent, box.rank); i++)
            memcpy(data + (size_t)i * elem_bytes,
                   r->want[chunk->tensor] + (size_t)fake_index(tensor->shape, &box, i) * elem_bytes,
                   elem_bytes);
        fake_frame(out, chunk, dcpk_crc32(0, data, (size_t)chunk->data_bytes), item,
                   data + chunk->data_bytes, &err);
    }
    return bytes;
}

static void check_file(const struct out_case *r, uint32_t file, const char *label)
{
    const size_t n_bytes = (size_t)r->out->files[file].n_bytes;
    uint8_t *want = want_file(r, file), *got = malloc(n_bytes + 2);
    char name[64];
    FILE *f;

    snprintf(name, sizeof name, "out/%s", r->out->files[file].name);
    f = fopen(scratch(name), "rb");
    CHECK(f != NULL, label);
    CHECK_EQ_INT(fread(got, 1, n_bytes + 1, f), n_bytes, label);
    fclose(f);
    for (size_t i = 0; i < n_bytes; i++)
        if (got[i] != want[i])
            fail_msg("%s: byte %zu of '%s' is %d, wanted %d", label, i, name, got[i], want[i]);
    free(got);
    free(want);
}

/* write_all, its second half first. */
static dcpk_status convert_in_steps(struct dcpk_exec *exec, struct dcpk_output *out,
                                    struct dcpk_folder *folder, struct dcpk_exec_stats *stats,
                                    struct dcpk_error *err)
{
    struct dcpk_writing *w = NULL;
    dcpk_status st = dcpk_writing_new(exec, out, folder, &w, err);
    const size_t n = st == DCPK_OK ? dcpk_writing_units(w)->n : 0;

    if (st == DCPK_OK)
        st = dcpk_writing_payloads(w, err);
    if (st == DCPK_OK)
        st = dcpk_writing_run(w, n / 2, n, err);
    if (st == DCPK_OK)
        st = dcpk_writing_run(w, 0, n, err);
    if (st == DCPK_OK)
        st = dcpk_writing_finish(w, stats, err);
    dcpk_writing_free(w);
    return st;
}

static void check_convert(struct out_case *r, struct dcpk_exec *exec, bool in_steps,
                          const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_plan_totals totals;
    struct dcpk_exec_stats stats;
    struct dcpk_folder *folder;

    CHECK_OK(dcpk_folder_begin(scratch("out"), DCPK_FOLDER_REPLACE, &folder, &err), label);
    CHECK_OK((in_steps ? convert_in_steps : write_all)(exec, r->out, folder, &stats, &err), label);
    CHECK_OK(dcpk_folder_publish(folder, &err), label);
    for (uint32_t f = 0; f < r->out->n_files; f++)
        check_file(r, f, label);
    CHECK_EQ_STR(scratch_read("out/index"), "done", label);
    dcpk_plan_totals(r->out, &totals);
    CHECK(stats.written_bytes <= totals.file_bytes, label);
}

static void make_views(const struct out_case *r, struct dcpk_view *pieces,
                       struct dcpk_view *literal)
{
    for (size_t t = 0; t < r->out->n_tensors; t++) {
        const struct dcpk_out_tensor *tensor = &r->out->tensors[t];

        pieces[t] = (struct dcpk_view){.dtype = tensor->dtype,
                                       .rank = tensor->rank,
                                       .shape = tensor->shape,
                                       .pieces = tensor->pieces,
                                       .n_pieces = tensor->n_pieces,
                                       .literal = tensor->literal};
        literal[t] = pieces[t];
        literal[t].literal = r->want[t];
    }
}

static void check_hash(struct out_case *r, struct dcpk_exec *exec, const struct dcpk_view *views,
                       const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_hash got[OUT_MAX], want;

    CHECK_OK(dcpk_exec_hash(exec, views, r->out->n_tensors, got, NULL, &err), label);
    for (size_t t = 0; t < r->out->n_tensors; t++) {
        const struct dcpk_view *view = &views[t];

        dcpk_hash_bytes(r->want[t],
                        (size_t)fake_elems(view->shape, view->rank) * dcpk_dtype_bytes(view->dtype),
                        &want);
        CHECK(memcmp(&got[t], &want, sizeof want) == 0, label);
    }
}

/* Equal at first; then one or two elements of what is compared with are changed. */
static void check_compare(struct out_case *r, struct dcpk_exec *exec, const struct dcpk_view *views,
                          const struct dcpk_view *literals, const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_compare results[OUT_MAX];
    const size_t n = r->out->n_tensors;

    CHECK_OK(dcpk_exec_compare(&(struct dcpk_view_pairs){exec, exec, views, literals, n, NULL, 0},
                               results, NULL, &err),
             label);
    for (size_t t = 0; t < n; t++) {
        CHECK(results[t].equal && results[t].n_different == 0, label);
        CHECK_EQ_INT(results[t].first_different, -1, label);
    }
    for (size_t t = 0; t < n; t++) {
        const struct dcpk_view *view = &literals[t];
        const int64_t n_elems = fake_elems(view->shape, view->rank);
        const size_t elem_bytes = dcpk_dtype_bytes(view->dtype);
        int64_t at[2];

        if (n_elems == 0 || views[t].literal != NULL)
            continue;
        at[0] = fake_below(&r->seed, n_elems);
        at[1] = fake_below(&r->seed, n_elems);
        for (int i = 0; i < (at[0] == at[1] ? 1 : 2); i++)
            r->want[t][((size_t)at[i] + 1) * elem_bytes - 1] ^= 0x10;
        CHECK_OK(
            dcpk_exec_compare(&(struct dcpk_view_pairs){exec, exec, &views[t], view, 1, NULL, 0},
                              results, NULL, &err),
            label);
        for (int i = 0; i < (at[0] == at[1] ? 1 : 2); i++)
            r->want[t][((size_t)at[i] + 1) * elem_bytes - 1] ^= 0x10;
        CHECK(!results[0].equal, label);
        CHECK_EQ_INT(results[0].n_different, at[0] == at[1] ? 1 : 2, label);
        CHECK_EQ_INT(results[0].first_different, at[0] < at[1] ? at[0] : at[1], label);
    }
}

static void run_round(struct out_case *r, size_t i)
{
    const struct dcpk_env env = {.kernels = runs[i].plain ? &dcpk_host_kernels_plain
                                                          : dcpk_host_kernel_sets[0],
                                 .n_threads = runs[i].n_threads,
                                 .memory_bytes = runs[i].memory_bytes,
                                 .unit_bytes = runs[i].unit_bytes};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_view views[OUT_MAX], literals[OUT_MAX];
    struct dcpk_exec *exec;
    char label[128];

    snprintf(label, sizeof label, "%s, %d threads, %" PRIu64 " bytes", r->label, runs[i].n_threads,
             runs[i].memory_bytes);
    CHECK_OK(dcpk_exec_new(r->ckpt, &env, &exec, &err), label);
    check_convert(r, exec, runs[i].unit_bytes > 0, label);
    make_views(r, views, literals);
    check_hash(r, exec, views, label);
    check_compare(r, exec, views, literals, label);
    CHECK_OK(dcpk_exec_check_items(exec, NULL, &err), label);
    dcpk_exec_free(exec);
}

static void test_random(void **state)
{
    static struct out_case r;

    (void)state;
    for (uint64_t seed = 1; seed <= 48; seed++) {
        memset(&r, 0, sizeof r);
        make_round(&r, seed);
        for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
            if (seed % 8 == 7 || (i + seed) % 3 == 0) /* small ones differ less between runs */
                run_round(&r, i);
        out_case_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random, scratch_setup, scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
