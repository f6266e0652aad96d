/* SPDX-License-Identifier: Apache-2.0 */
/* test_journal_subject.c - what a journal says it is of changes with everything that decides a byte
 * of the output, and with the input. */
#include <fcntl.h>
#include <sys/stat.h>

#include "lib/write/journal.h"
#include "lib/write/units.h"
#include "tests/copied_case.h"
#include "tests/unit/scratch.h"

enum { UNIT_BYTES = 50 << 10 };

/* Everything that decides a byte or its place, and what does not. */
enum what {
    NOTHING,
    KEY,
    DTYPE,
    SHAPE,
    SOURCE,
    ORIGIN,
    PLACE,
    SPAN,
    PAYLOAD,
    FILE_NAME,
    FILE_BYTES
};
static const struct {
    const char *label;
    enum what what;
} changes[] = {
    {"a key", KEY},        {"a dtype", DTYPE},
    {"a shape", SHAPE},    {"another source", SOURCE},
    {"its box", ORIGIN},   {"a chunk's place", PLACE},
    {"its box", SPAN},     {"a payload's length", PAYLOAD},
    {"a name", FILE_NAME}, {"a file's length", FILE_BYTES},
};

/* Describe the output with one thing changed for the time of the call. */
static void describe(struct dcpk_output *out, enum what what, const char *in,
                     struct dcpk_journal_subject *subject, const char *label)
{
    const struct dcpk_out_tensor tensor = out->tensors[1];
    const struct dcpk_out_chunk chunk = out->chunks[2];
    const struct dcpk_out_file file = out->files[0];
    const uint64_t payload_bytes = out->payloads[0].n_bytes;
    const char *const key[] = {"another"};
    const int64_t shape[] = {1000, 300}, span[] = {1, 0, 0, 7},
                  box[] = {1, 0, 299, 1000, 0, 0, 299, 1000};
    struct dcpk_piece piece = tensor.pieces[0];
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_units units = {0};

    CHECK_OK(dcpk_units_cut(out, UNIT_BYTES, &units, &err), label);
    if (what == SOURCE)
        piece.src++;
    if (what == ORIGIN)
        piece.span = box;
    out->tensors[1].pieces = &piece;
    out->tensors[1].keys = what == KEY ? key : tensor.keys;
    out->tensors[1].dtype = what == DTYPE ? DCPK_I32 : tensor.dtype;
    out->tensors[1].shape = what == SHAPE ? shape : tensor.shape;
    out->chunks[2].offset_bytes += what == PLACE;
    out->chunks[2].span = what == SPAN ? span : chunk.span;
    out->payloads[0].n_bytes += what == PAYLOAD;
    out->files[0].name = what == FILE_NAME ? "another" : file.name;
    out->files[0].n_bytes += what == FILE_BYTES;
    CHECK_OK(dcpk_journal_describe(&units, in, subject, &err), label);
    out->tensors[1] = tensor;
    out->chunks[2] = chunk;
    out->files[0] = file;
    out->payloads[0].n_bytes = payload_bytes;
    dcpk_units_release(&units);
}

static void subjects(void **state)
{
    const struct timespec past[] = {{1000, 1}, {1000, 1}}, later[] = {{1000, 1}, {1000, 2}};
    struct dcpk_journal_subject first, other;
    static struct copied_case copied;
    struct dcpk_output *out;

    (void)state;
    copied_begin(&copied, &fake_format);
    out = copied.out;
    describe(out, NOTHING, "in", &first, "first");
    describe(out, NOTHING, "in", &other, "again");
    CHECK(memcmp(&first, &other, sizeof first) == 0, "the same");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        describe(out, changes[i].what, "in", &other, changes[i].label);
        CHECK(memcmp(&first.plan, &other.plan, sizeof first.plan) != 0, changes[i].label);
        CHECK(memcmp(&first.input, &other.input, sizeof first.input) == 0, changes[i].label);
    }
    scratch_write("in.tar", "an archive");
    CHECK_EQ_INT(utimensat(AT_FDCWD, scratch("in.tar"), past, 0), 0, "utimensat");
    describe(out, NOTHING, scratch("in.tar"), &first, "archive");
    CHECK(memcmp(&first.input, &other.input, sizeof first.input) != 0, "an archive counts");
    CHECK_EQ_INT(utimensat(AT_FDCWD, scratch("in.tar"), later, 0), 0, "utimensat");
    describe(out, NOTHING, scratch("in.tar"), &other, "archive");
    CHECK(memcmp(&first.input, &other.input, sizeof first.input) != 0, "changed a ns later");
    copied_end(&copied);
}

/* ---- views ---- */

/* Add a view of the first elements of a chunk, and one of its elements plus a number. */
static void add_views(struct dcpk_checkpoint *ckpt)
{
    static const int64_t shape[] = {1};
    const struct dcpk_tensor tensor = {.key = "view", .dtype = DCPK_F32, .rank = 1, .shape = shape};
    struct dcpk_computed how = {.scales = DCPK_NO_SCALES, .addend = 1};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_box whole;
    uint32_t index;

    dcpk_box_whole(shape, 1, &whole);
    CHECK_OK(dcpk_checkpoint_add_view(ckpt, &tensor, &how.values, &err), "view");
    CHECK_OK(dcpk_checkpoint_add_run(ckpt, &whole, 0, 1, (struct dcpk_chunk_run){0, 0}, &err),
             "run");
    CHECK_OK(dcpk_checkpoint_add_computed(ckpt, &tensor, &how, &index, &err), "computed");
}

enum view_change { RUN_CHUNK, RUN_FIRST, RUN_SPAN, VIEW_DTYPE, VIEW_VALUES, VIEW_ADDEND };
static const struct {
    const char *label;
    enum view_change what;
} view_changes[] = {
    {"of another chunk", RUN_CHUNK},     {"from another element", RUN_FIRST},
    {"in another box", RUN_SPAN},        {"of another dtype", VIEW_DTYPE},
    {"computed of others", VIEW_VALUES}, {"plus another number", VIEW_ADDEND},
};

/* Pieces call a view by its number: the plan has what it is made of, too. */
static void views(void **state)
{
    static const int64_t span[] = {1, 1};
    struct dcpk_journal_subject first, other;
    struct dcpk_checkpoint *ckpt;
    static struct copied_case copied;

    (void)state;
    copied_begin(&copied, &fake_format);
    ckpt = copied.ckpt;
    describe(copied.out, NOTHING, NULL, &other, "without views");
    add_views(ckpt);
    describe(copied.out, NOTHING, NULL, &first, "with views");
    CHECK(memcmp(&first.plan, &other.plan, sizeof first.plan) != 0, "views count");
    for (size_t i = 0; i < sizeof view_changes / sizeof *view_changes; i++) {
        const enum view_change what = view_changes[i].what;
        struct dcpk_tensor *view = &ckpt->tensors[ckpt->n_tensors];
        struct dcpk_chunk *chunk = &ckpt->chunks[view->first_chunk];
        const struct dcpk_tensor kept[] = {view[0], view[1]};
        const struct dcpk_chunk_run run = ckpt->runs[0];
        const struct dcpk_chunk kept_chunk = *chunk;
        struct dcpk_computed how = *view[1].computed;

        ckpt->runs[0].of += what == RUN_CHUNK;
        ckpt->runs[0].first += what == RUN_FIRST;
        chunk->span = what == RUN_SPAN ? span : chunk->span;
        view[0].dtype = what == VIEW_DTYPE ? DCPK_I32 : DCPK_F32;
        how.values += what == VIEW_VALUES;
        how.addend += what == VIEW_ADDEND ? -2.0F : 0;
        view[1].computed = &how;
        describe(copied.out, NOTHING, NULL, &other, view_changes[i].label);
        CHECK(memcmp(&first.plan, &other.plan, sizeof first.plan) != 0, view_changes[i].label);
        CHECK(memcmp(&first.input, &other.input, sizeof first.input) == 0, view_changes[i].label);
        ckpt->runs[0] = run;
        *chunk = kept_chunk;
        memcpy(view, kept, sizeof kept);
    }
    describe(copied.out, NOTHING, NULL, &other, "as before");
    CHECK(memcmp(&first, &other, sizeof first) == 0, "as before");
    copied_end(&copied);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(subjects, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(views, scratch_setup, scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
