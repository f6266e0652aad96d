/* SPDX-License-Identifier: Apache-2.0 */
/* test_resume.c - a conversion cut short anywhere and resumed gives the bytes of one that was
 * not. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "lib/write/writing.h"
#include "tests/copied_case.h"
#include "tests/unit/scratch.h"
#include "tests/write_all.h"

enum { UNIT_BYTES = 50 << 10 }; /* small: journals are written several times a run */

static struct copied_case copied;
static atomic_int frames_left; /* -1: any number */
static bool frames_kill;       /* the process, instead of failing */

static dcpk_status failing_frame(const struct dcpk_output *out, const struct dcpk_out_chunk *chunk,
                                 uint32_t crc32, uint8_t *lead, uint8_t *tail,
                                 struct dcpk_error *err)
{
    int left = atomic_load(&frames_left);

    while (left > 0 && !atomic_compare_exchange_weak(&frames_left, &left, left - 1))
        continue;
    if (left == 0)
        return frames_kill ? (dcpk_status)raise(SIGKILL) : dcpk_fail(err, DCPK_EIO, "frame");
    return fake_frame(out, chunk, crc32, lead, tail, err);
}

static bool fails_ahead;
static int n_ahead; /* calls */

static dcpk_status failing_ahead(const struct dcpk_output *out, struct dcpk_folder *folder,
                                 struct dcpk_error *err)
{
    n_ahead++;
    return fails_ahead ? dcpk_fail(err, DCPK_EIO, "ahead") : fake_write_ahead(out, folder, err);
}

static bool fails_finish;

static dcpk_status failing_finish(struct dcpk_output *out, struct dcpk_folder *folder,
                                  struct dcpk_error *err)
{
    return fails_finish ? dcpk_fail(err, DCPK_EIO, "finish") : fake_finish(out, folder, err);
}

static const struct dcpk_format_writer failing_writer = {
    .lay_out = fake_lay_out,
    .frame = failing_frame,
    .encode = fake_encode,
    .write_ahead = failing_ahead,
    .finish = failing_finish,
};
static struct dcpk_format failing_format;

/* What one attempt came to. */
struct attempt {
    dcpk_status st;
    bool is_kept;
    uint64_t resumed_bytes;
    struct dcpk_exec_stats stats;
    struct dcpk_error err;
};

static void write_once(struct dcpk_exec *exec, struct dcpk_output *out, struct attempt *a)
{
    struct dcpk_journal_subject subject;
    struct dcpk_folder *folder = NULL;
    struct dcpk_writing *w = NULL;
    struct dcpk_error *err = &a->err;

    memset(a, 0, sizeof *a);
    a->st = dcpk_folder_begin(scratch("out"), DCPK_FOLDER_RESUME, &folder, err);
    if (a->st == DCPK_OK)
        a->st = dcpk_writing_new(exec, out, folder, &w, err);
    if (a->st == DCPK_OK)
        a->st = dcpk_journal_describe(dcpk_writing_units(w), "in", &subject, err);
    if (a->st == DCPK_OK)
        a->st = dcpk_writing_resume(w, &subject, &a->resumed_bytes, err);
    if (a->st == DCPK_OK)
        a->st = dcpk_writing_payloads(w, err);
    if (a->st == DCPK_OK)
        a->st = dcpk_writing_run(w, 0, dcpk_writing_units(w)->n, err);
    if (a->st == DCPK_OK)
        a->st = dcpk_writing_finish(w, &a->stats, err);
    a->is_kept = a->st != DCPK_OK && w != NULL && dcpk_writing_keep(w);
    dcpk_writing_free(w);
    if (a->st == DCPK_OK)
        a->st = dcpk_folder_publish(folder, err);
    if (a->st != DCPK_OK)
        dcpk_folder_abandon(folder);
}

static uint8_t *slurp(const char *folder, const char *name, size_t n_bytes)
{
    uint8_t *bytes = malloc(n_bytes + 1);
    char path[64];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(scratch(path), "rb");
    CHECK(f != NULL, path);
    CHECK_EQ_INT(fread(bytes, 1, n_bytes + 1, f), n_bytes, path);
    fclose(f);
    return bytes;
}

/* The files of out/ are those of want/; out/ is deleted. */
static void check_same(const struct dcpk_output *out, const char *label)
{
    char path[64];

    for (size_t f = 0; f < out->n_files; f++) {
        const size_t n = (size_t)out->files[f].n_bytes;
        uint8_t *want = slurp("want", out->files[f].name, n);
        uint8_t *got = slurp("out", out->files[f].name, n);

        CHECK(memcmp(got, want, n) == 0, label);
        free(got);
        free(want);
        snprintf(path, sizeof path, "out/%s", out->files[f].name);
        CHECK_EQ_INT(unlink(scratch(path)), 0, label);
    }
    CHECK_EQ_STR(scratch_read("out/index"), "done", label);
    CHECK_EQ_INT(unlink(scratch("out/index")), 0, label);
    CHECK_EQ_INT(rmdir(scratch("out")), 0, label); /* and nothing else was in it */
}

/* Source, plan, and the output of an undisturbed run in want/. */
static struct dcpk_output *set_up(struct dcpk_checkpoint **ckpt)
{
    const struct dcpk_env env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 1};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder;
    struct dcpk_output *out;
    struct dcpk_exec *exec;

    failing_format = fake_format;
    failing_format.writer = &failing_writer;
    copied_begin(&copied, &failing_format);
    *ckpt = copied.ckpt;
    out = copied.out;
    frames_left = -1;
    fails_finish = false;
    CHECK_OK(dcpk_exec_new(*ckpt, &env, &exec, &err), "exec");
    CHECK_OK(dcpk_folder_begin(scratch("want"), 0, &folder, &err), "begin");
    CHECK_OK(write_all(exec, out, folder, NULL, &err), "convert");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    dcpk_exec_free(exec);
    return out;
}

static uint64_t all_bytes(const struct dcpk_output *out)
{
    uint64_t n = 0;

    for (size_t i = 0; i < out->n_chunks; i++)
        n += out->chunks[i].data_bytes;
    return n;
}

/* The n-th frame fails, for every n; then nothing does. */
static void any_frame(void **state)
{
    struct dcpk_checkpoint *ckpt;
    struct dcpk_output *out = set_up(&ckpt);
    uint64_t most_resumed = 0;

    (void)state;
    CHECK(out->n_files > 1, "several files");
    for (int n = 0, threads = 1; n <= COPIED_TENSORS; n++, threads = 5 - threads) {
        const struct dcpk_env env = {
            .kernels = dcpk_host_kernel_sets[0], .n_threads = threads, .unit_bytes = UNIT_BYTES};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct attempt first, second;
        struct dcpk_exec *exec;
        char label[32];

        snprintf(label, sizeof label, "frame %d", n);
        CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), label);
        frames_left = n;
        fails_finish = n == COPIED_TENSORS;
        write_once(exec, out, &first);
        CHECK_EQ_INT(first.st, DCPK_EIO, label);
        CHECK(strstr(first.err.text, n == COPIED_TENSORS ? "finish" : "frame") != NULL,
              first.err.text);
        CHECK_EQ_INT(scratch_has("out.dcpkit-partial"), first.is_kept, label);
        CHECK(!scratch_has("out"), label);
        frames_left = -1;
        fails_finish = false;
        write_once(exec, out, &second);
        CHECK_EQ_INT(second.st, DCPK_OK, second.err.text);
        CHECK_EQ_INT(second.resumed_bytes >= UNIT_BYTES, first.is_kept, label);
        CHECK(second.stats.written_bytes <= /* what was done is not done again */
                  all_bytes(out) - second.resumed_bytes + 5000 +
                      COPIED_TENSORS * (FAKE_LEAD_BYTES + FAKE_TAIL_BYTES),
              label);
        most_resumed = second.resumed_bytes > most_resumed ? second.resumed_bytes : most_resumed;
        check_same(out, label);
        dcpk_exec_free(exec);
    }
    CHECK_EQ_INT(most_resumed, all_bytes(out), "when finish failed");
    copied_end(&copied);
}

/* What is written ahead: once, whatever the number of runs, and nobody sees it before the end. */
static void ahead(void **state)
{
    const struct dcpk_env env = {
        .kernels = dcpk_host_kernel_sets[0], .n_threads = 2, .unit_bytes = UNIT_BYTES};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_output *out = set_up(&ckpt);
    struct dcpk_folder *folder = NULL;
    struct dcpk_writing *w = NULL;
    struct dcpk_exec *exec;
    struct attempt a;

    (void)state;
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), "exec");
    CHECK_OK(dcpk_folder_begin(scratch("out"), 0, &folder, &err), "begin");
    CHECK_OK(dcpk_writing_new(exec, out, folder, &w, &err), "new");
    CHECK_OK(dcpk_writing_payloads(w, &err), "payloads");
    n_ahead = 0;
    for (size_t i = 0; i < dcpk_writing_units(w)->n; i++)
        CHECK_OK(dcpk_writing_run(w, i, i + 1, &err), "a unit");
    CHECK_EQ_INT(n_ahead, 1, "calls");
    CHECK(!scratch_has("out.dcpkit-partial/index"), "hidden");
    CHECK_OK(dcpk_writing_finish(w, NULL, &err), "finish");
    CHECK_EQ_STR(scratch_read("out.dcpkit-partial/index"), "done", "shown");
    CHECK_EQ_INT(n_ahead, 1, "calls");
    dcpk_writing_free(w);
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    check_same(out, "in many runs");
    fails_ahead = true;
    write_once(exec, out, &a);
    CHECK_EQ_INT(a.st, DCPK_EIO, "fails");
    CHECK(strstr(a.err.text, "ahead") != NULL && !scratch_has("out"), a.err.text);
    fails_ahead = false;
    write_once(exec, out, &a);
    CHECK_EQ_INT(a.st, DCPK_OK, a.err.text);
    check_same(out, "after the failure");
    dcpk_exec_free(exec);
    copied_end(&copied);
}

/* Convert in a process that is killed with the n-th frame. Returns whether it was. */
static bool write_killed(struct dcpk_checkpoint *ckpt, struct dcpk_output *out, int n,
                         const char *label)
{
    const struct dcpk_env env = {
        .kernels = dcpk_host_kernel_sets[0], .n_threads = 1, .unit_bytes = UNIT_BYTES};
    int status;
    const pid_t child = fork();

    CHECK(child >= 0, label);
    if (child == 0) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_exec *exec;
        struct attempt a = {.st = DCPK_ENOMEM};

        frames_kill = true;
        frames_left = n - 1;
        if (dcpk_exec_new(ckpt, &env, &exec, &err) == DCPK_OK)
            write_once(exec, out, &a);
        _exit(a.st == DCPK_OK ? 0 : 1);
    }
    CHECK_EQ_INT(waitpid(child, &status, 0), child, label);
    CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0, label);
    return WIFSIGNALED(status);
}

/* Killed anywhere: nothing looks whole, and the next run goes on to the same bytes. */
static void killed(void **state)
{
    const struct dcpk_env env = {
        .kernels = dcpk_host_kernel_sets[0], .n_threads = 2, .unit_bytes = UNIT_BYTES};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_output *out = set_up(&ckpt);
    uint64_t most_resumed = 0;
    struct dcpk_exec *exec;
    struct attempt a;

    (void)state;
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), "exec");
    for (int n = 1; write_killed(ckpt, out, n, "killed"); n += 3) {
        char label[32];

        snprintf(label, sizeof label, "frame %d", n);
        CHECK(!scratch_has("out") && scratch_has("out.dcpkit-partial"), label);
        write_once(exec, out, &a);
        CHECK_EQ_INT(a.st, DCPK_OK, a.err.text);
        most_resumed = a.resumed_bytes > most_resumed ? a.resumed_bytes : most_resumed;
        check_same(out, label);
    }
    CHECK(most_resumed > 2 * 16 * UNIT_BYTES, "the journal was written more than twice");
    check_same(out, "not killed");
    dcpk_exec_free(exec);
    copied_end(&copied);
}

static bool stop(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct attempt *told = context;

    told->resumed_bytes = done_bytes;
    told->stats.written_bytes = total_bytes;
    return false;
}

/* Stopped on request, while what was done is read back: progress counts that, and it is kept. */
static void stopped(void **state)
{
    struct attempt first, second, third, told = {0};
    struct dcpk_env env = {
        .kernels = dcpk_host_kernel_sets[0], .n_threads = 2, .unit_bytes = UNIT_BYTES};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_output *out = set_up(&ckpt);
    struct dcpk_exec *exec, *stopping;

    (void)state;
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), "exec");
    env.progress = (struct dcpk_progress){.update = stop, .context = &told};
    CHECK_OK(dcpk_exec_new(ckpt, &env, &stopping, &err), "exec");
    fails_finish = true;
    write_once(exec, out, &first);
    CHECK(first.is_kept, first.err.text);
    fails_finish = false;
    write_once(stopping, out, &second);
    CHECK_EQ_INT(second.st, DCPK_ECANCELLED, second.err.text);
    CHECK(second.is_kept, "stopped");
    CHECK(told.resumed_bytes > 0 && told.resumed_bytes < all_bytes(out), "a unit or two");
    CHECK_EQ_INT(told.stats.written_bytes, all_bytes(out) + 5000, "in all");
    write_once(exec, out, &third);
    CHECK_EQ_INT(third.st, DCPK_OK, third.err.text);
    CHECK_EQ_INT(third.resumed_bytes, all_bytes(out), "all was kept");
    check_same(out, "stopped");
    dcpk_exec_free(exec);
    dcpk_exec_free(stopping);
    copied_end(&copied);
}

/* The n-th allocation fails, for every n; the next run goes on. */
static void any_allocation(void **state)
{
    const struct dcpk_env env = {
        .kernels = dcpk_host_kernel_sets[0], .n_threads = 1, .unit_bytes = 1 << 20};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_output *out = set_up(&ckpt);
    uint64_t n_kept = 0;
    struct dcpk_exec *exec;
    struct attempt a;

    (void)state;
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), "exec");
    for (uint64_t n = 1;; n++) {
        dcpk_alloc_fail_nth(n);
        write_once(exec, out, &a);
        dcpk_alloc_fail_nth(0);
        if (a.st == DCPK_OK)
            break;
        CHECK_EQ_INT(a.st, DCPK_ENOMEM, a.err.text);
        CHECK_EQ_INT(scratch_has("out.dcpkit-partial"), a.is_kept, a.err.text);
        n_kept += a.is_kept;
        if (!scratch_has("out")) /* it is published before the folder around it is synced */
            write_once(exec, out, &a);
        check_same(out, a.err.text);
    }
    CHECK(n_kept > 0, "some failed late");
    check_same(out, "allocations");
    dcpk_exec_free(exec);
    copied_end(&copied);
}

/* A file that the journal speaks of is gone, or is not as long: it is written again. */
static void file_is_gone(void **state)
{
    const struct dcpk_env env = {
        .kernels = dcpk_host_kernel_sets[0], .n_threads = 1, .unit_bytes = UNIT_BYTES};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_output *out = set_up(&ckpt);
    struct dcpk_exec *exec;
    struct attempt a;
    char path[64];

    (void)state;
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), "exec");
    fails_finish = true;
    for (int i = 0; i < 3; i++) {
        write_once(exec, out, &a);
        CHECK(a.is_kept, a.err.text);
        CHECK_EQ_INT(a.resumed_bytes < all_bytes(out), true, "some were lost");
        snprintf(path, sizeof path, "out.dcpkit-partial/%s", out->files[i % 2].name);
        CHECK_EQ_INT(i == 0 ? truncate(scratch(path), 100) : unlink(scratch(path)), 0, path);
    }
    fails_finish = false;
    write_once(exec, out, &a);
    CHECK_EQ_INT(a.st, DCPK_OK, a.err.text);
    CHECK(a.resumed_bytes > 0, "the others count");
    check_same(out, "gone");
    dcpk_exec_free(exec);
    copied_end(&copied);
}

/* A byte that the journal says is on disk is another one, in any file, whether its chunk lies in
 * one unit or in several: it is written again. */
static void byte_is_wrong(void **state)
{
    const struct dcpk_env env = {
        .kernels = dcpk_host_kernel_sets[0], .n_threads = 2, .unit_bytes = UNIT_BYTES};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_output *out = set_up(&ckpt);
    struct dcpk_exec *exec;
    struct attempt a;

    (void)state;
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), "exec");
    fails_finish = true;
    write_once(exec, out, &a);
    CHECK(a.is_kept, a.err.text);
    for (size_t i = 0; i < out->n_chunks; i++) {
        const struct dcpk_out_chunk *chunk = &out->chunks[i];
        const char *name = out->files[chunk->file].name;
        /* the last of the data; before it, of the frame */
        const uint64_t wrong[] = {chunk->offset_bytes + chunk->lead_bytes + chunk->data_bytes - 1,
                                  chunk->offset_bytes};
        char path[64];
        uint8_t byte = 0;
        int fd;

        snprintf(path, sizeof path, "out.dcpkit-partial/%s", name);
        fd = open(scratch(path), O_RDWR);
        CHECK(fd >= 0 && pread(fd, &byte, 1, (off_t)wrong[i % 2]) == 1, path);
        byte ^= 0x40;
        CHECK(pwrite(fd, &byte, 1, (off_t)wrong[i % 2]) == 1 && close(fd) == 0, path);
        write_once(exec, out, &a);
        CHECK_EQ_INT(a.st, DCPK_EIO, a.err.text);
        CHECK(a.is_kept, a.err.text);
        /* the frame of a chunk in parts is written anew in any case */
        if (i % 2 == 0 || chunk->data_bytes <= UNIT_BYTES)
            CHECK(a.resumed_bytes < all_bytes(out) &&
                      a.resumed_bytes >= all_bytes(out) - UNIT_BYTES,
                  "the unit that it lies in");
    }
    fails_finish = false;
    write_once(exec, out, &a);
    CHECK_EQ_INT(a.st, DCPK_OK, a.err.text);
    CHECK_EQ_INT(a.resumed_bytes, all_bytes(out), "all was mended");
    check_same(out, "mended");
    dcpk_exec_free(exec);
    copied_end(&copied);
}

/* A file that the journal speaks of is gone; the run that makes it again is killed: that it is
 * there does not mean that it has its bytes. */
static void killed_while_gone(void **state)
{
    const struct dcpk_env env = {
        .kernels = dcpk_host_kernel_sets[0], .n_threads = 1, .unit_bytes = UNIT_BYTES};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_output *out = set_up(&ckpt);
    bool was_killed = true;
    struct dcpk_exec *exec;
    struct attempt a;
    char path[64];

    (void)state;
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), "exec");
    snprintf(path, sizeof path, "out.dcpkit-partial/%s", out->files[0].name);
    for (int n = 1; was_killed; n += 7) {
        char label[32];

        snprintf(label, sizeof label, "frame %d", n);
        fails_finish = true;
        write_once(exec, out, &a);
        CHECK(a.is_kept, a.err.text);
        CHECK_EQ_INT(unlink(scratch(path)), 0, path);
        fails_finish = false;
        was_killed = write_killed(ckpt, out, n, label);
        if (was_killed)
            write_once(exec, out, &a);
        check_same(out, label);
    }
    dcpk_exec_free(exec);
    copied_end(&copied);
}

/* Another size of units, another plan: refused, and kept as it is. */
static void other_plan(void **state)
{
    struct dcpk_env env = {
        .kernels = dcpk_host_kernel_sets[0], .n_threads = 1, .unit_bytes = UNIT_BYTES};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_output *out = set_up(&ckpt);
    struct dcpk_exec *exec, *other;
    struct attempt a;

    (void)state;
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), "exec");
    env.unit_bytes = 2 * UNIT_BYTES;
    CHECK_OK(dcpk_exec_new(ckpt, &env, &other, &err), "other");
    fails_finish = true;
    write_once(exec, out, &a);
    CHECK(a.is_kept, a.err.text);
    write_once(other, out, &a);
    CHECK_EQ_INT(a.st, DCPK_EUSAGE, a.err.text);
    CHECK(!a.is_kept && strstr(a.err.text, "other options") != NULL, a.err.text);
    out->chunks[0].tail_bytes++;
    write_once(exec, out, &a);
    CHECK_EQ_INT(a.st, DCPK_EUSAGE, a.err.text);
    out->chunks[0].tail_bytes--;
    fails_finish = false;
    write_once(exec, out, &a);
    CHECK_EQ_INT(a.st, DCPK_OK, a.err.text);
    CHECK_EQ_INT(a.resumed_bytes, all_bytes(out), "all was kept");
    check_same(out, "the right one");
    dcpk_exec_free(exec);
    dcpk_exec_free(other);
    copied_end(&copied);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(any_frame),      TEST(ahead),        TEST(killed),        TEST(stopped),
        TEST(any_allocation), TEST(file_is_gone), TEST(byte_is_wrong), TEST(killed_while_gone),
        TEST(other_plan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
