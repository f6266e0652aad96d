/* SPDX-License-Identifier: Apache-2.0 */
/* test_verify_golden.c - convert --verify lets nothing wrong be published: a byte that the disk
 * changed, a tensor in another one's place. Nor does a conversion that is stopped. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "lib/base/text.h"
#include "tests/golden/conversions.h"

#define SAMPLE "torch_dist_c_dense_tp2pp2"

/* Change one bit in the middle of the data, as a bad disk or cable does. */
static dcpk_status flip_and_finish(struct dcpk_output *out, struct dcpk_folder *folder,
                                   struct dcpk_error *err)
{
    const struct dcpk_out_chunk *chunk = &out->chunks[out->n_chunks / 2];
    const off_t at = (off_t)(chunk->offset_bytes + chunk->lead_bytes + chunk->data_bytes / 2);
    char path[8192];
    uint8_t byte = 0;
    int fd;

    snprintf(path, sizeof path, "%s/%s", dcpk_folder_partial(folder), out->files[chunk->file].name);
    fd = open(path, O_RDWR);
    CHECK_EQ_INT(pread(fd, &byte, 1, at), 1, path);
    byte ^= 4;
    CHECK_EQ_INT(pwrite(fd, &byte, 1, at), 1, path);
    close(fd);
    return dcpk_format_find(out->format->name)->writer->finish(out, folder, err);
}

/* Give a layer's weight to its neighbour and the other way round, as a wrong rule would. */
static dcpk_status swap_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                   struct dcpk_error *err)
{
    struct dcpk_out_tensor *layers[2] = {NULL, NULL}, kept;
    dcpk_status st = dcpk_format_find("fsdp_dtensor")->mapping->from_model(model, out, err);

    if (st != DCPK_OK)
        return st;
    for (size_t i = 0; i < out->n_tensors; i++)
        for (int layer = 0; layer < 2; layer++)
            if (dcpk_starts_with(out->tensors[i].keys[0], "model.") &&
                dcpk_ends_with(out->tensors[i].keys[0],
                               layer == 0 ? "0.mlp.linear_fc2.weight" : "1.mlp.linear_fc2.weight"))
                layers[layer] = &out->tensors[i];
    CHECK(layers[0] != NULL && layers[1] != NULL, "two layers");
    kept = *layers[0];
    layers[0]->pieces = layers[1]->pieces;
    layers[0]->n_pieces = layers[1]->n_pieces;
    layers[1]->pieces = kept.pieces;
    layers[1]->n_pieces = kept.n_pieces;
    return DCPK_OK;
}

/* Hide a call among the objects, as a hole in what is written would. */
static dcpk_status call_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                   struct dcpk_error *err)
{
    static const struct dcpk_value command = {.kind = DCPK_V_STR, .n = 4, .as.str = "true"};
    static const struct dcpk_value *const items[] = {&command};
    static const struct dcpk_value args = {.kind = DCPK_V_TUPLE, .n = 1, .as.items = items};
    static const struct dcpk_value_object object = {
        .module = "os", .name = "system", .is_reduce = true, .args = &args};
    static const struct dcpk_value call = {.kind = DCPK_V_OBJECT, .as.object = &object};
    const dcpk_status st = dcpk_format_find("fsdp_dtensor")->mapping->from_model(model, out, err);
    bool is_hidden = false;

    for (size_t i = 0; i < out->n_payloads && st == DCPK_OK && !is_hidden; i++) {
        is_hidden = out->payloads[i].value != NULL && out->payloads[i].value->kind == DCPK_V_INT;
        if (is_hidden)
            out->payloads[i].value = &call;
    }
    CHECK(st != DCPK_OK || is_hidden, "an object");
    return st;
}

static dcpk_status convert(const struct dcpk_format *to, unsigned flags, const char *out,
                           struct dcpk_error *err)
{
    const struct dcpk_convert_options options = {
        .to = to,
        .env = {.formats = dcpk_formats, .kernels = dcpk_host_kernel_sets[0]},
        .flags = flags,
        .in = sample_path(SAMPLE),
        .out = out};

    return run_conversion(&options, err);
}

static bool exists(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0;
}

static void test_damage(void **state)
{
    struct dcpk_format flips = *dcpk_format_find("fsdp_dtensor"), swaps = flips, calls = flips;
    struct dcpk_format_writer writer = *flips.writer;
    struct dcpk_format_mapping mapping = *swaps.mapping, calling = mapping;
    const struct {
        const char *label;
        const struct dcpk_format *to;
        dcpk_status status;
        const char *message;
    } cases[] = {
        {"flipped", &flips, DCPK_EFORMAT, "nothing is published): checking '"},
        {"swapped", &swaps, DCPK_EMISMATCH, "'decoder.layers.0.mlp.linear_fc2.weight'"},
        {"calling", &calls, DCPK_EFORMAT, "'os.system' is not a class or function"},
    };

    (void)state;
    writer.finish = flip_and_finish;
    mapping.from_model = swap_from_model;
    calling.from_model = call_from_model;
    flips.writer = &writer;
    swaps.mapping = &mapping;
    calls.mapping = &calling;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        const char *out = scratch(cases[i].label);

        CHECK_FAILS(convert(cases[i].to, DCPK_CONVERT_VERIFY, out, &err), cases[i].status,
                    cases[i].message, cases[i].label);
        CHECK(!exists(out), cases[i].label);
        /* without it, the output is not read back */
        dcpk_error_clear(&err);
        CHECK_OK(convert(cases[i].to, 0, out, &err), cases[i].label);
        CHECK(exists(out), cases[i].label);
    }
}

/* Stops the work in the stage called `stage`. */
struct stopper {
    const char *stage;
    bool is_there;
};

static void on_begin(void *context, const char *label)
{
    struct stopper *stopper = context;

    stopper->is_there = strcmp(label, stopper->stage) == 0;
}

static bool on_update(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const struct stopper *stopper = context;

    (void)done_bytes;
    (void)total_bytes;
    return !stopper->is_there;
}

/* What a signal does: whichever stage it meets, nothing is published. */
static void test_stop(void **state)
{
    static const char *const stages[] = {
        "checking the input", "converting", "reading objects", "reading",
        "comparing",          "hashing",    "hashing files"};

    (void)state;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct stopper stopper = {.stage = stages[i]};
        const char *out = scratch(stages[i]);
        const struct dcpk_convert_options options = {
            .to = dcpk_format_find("fsdp_dtensor"),
            .env = {.formats = dcpk_formats,
                    .kernels = dcpk_host_kernel_sets[0],
                    .progress = {on_update, &stopper, on_begin}},
            .flags = DCPK_CONVERT_CHECK_INPUT | DCPK_CONVERT_VERIFY | DCPK_CONVERT_HASHES |
                     DCPK_CONVERT_INTEGRITY,
            .in = sample_path(SAMPLE),
            .out = out};

        CHECK_FAILS(run_conversion(&options, &err), DCPK_ECANCELLED, "stopped", stages[i]);
        CHECK(!exists(out), stages[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damage), cmocka_unit_test(test_stop)};

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
