/* SPDX-License-Identifier: Apache-2.0 */
/* test_user_buffers.c - which buffers are registered, when, with which groups and how, by
 * collectives that write down what they are asked for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "lib/train/train.h"
#include "lib/train/user_buffers.h"
#include "tests/check.h"

static struct dcpk_error err = DCPK_ERROR_INIT;

/* A library: two ranks, the other one being like this one, or without windows. */
static char seen[1024];  /* calls, "word group.buffer " */
static char noted[1024]; /* lines */
static void *known[16];  /* buffers, by number from 1 */
static size_t n_known;
static enum dcpk_registration windows_are, locals_are; /* what registrations become */
static bool lacks_buffers, other_has_no_windows, fails;

static void see(const char *word, const struct dcpk_group *group, const void *at)
{
    const size_t n = strlen(seen);
    size_t i = 0;

    while (i < n_known && known[i] != at)
        i++;
    snprintf(seen + n, sizeof seen - n, "%s %d.%zu ", word, group->timeout_ms, i + 1);
}

static dcpk_status fake_alloc(struct dcpk_group *group, size_t n_bytes, void **at,
                              struct dcpk_error *e)
{
    if (lacks_buffers)
        return dcpk_fail(e, DCPK_EUNSUPPORTED, "the library is too old");
    *at = malloc(n_bytes);
    known[n_known++] = *at;
    see("alloc", group, *at);
    return DCPK_OK;
}

static void fake_free(struct dcpk_group *group, void *at)
{
    see("free", group, at);
    free(at);
}

static dcpk_status fake_register(struct dcpk_group *group, void *at, size_t n_bytes,
                                 enum dcpk_registration by, enum dcpk_registration *got,
                                 struct dcpk_error *e)
{
    CHECK(n_bytes > 0, "bytes");
    if (fails)
        return dcpk_fail(e, DCPK_EIO, "the network broke");
    see(by == DCPK_REGISTERED_WINDOW ? "window" : "local", group, at);
    *got = by == DCPK_REGISTERED_WINDOW ? windows_are : locals_are;
    return DCPK_OK;
}

static void fake_unregister(struct dcpk_group *group, void *at)
{
    see("undo", group, at);
}

/* Both ranks have the same numbers, but for windows. */
static dcpk_status fake_reduce(struct dcpk_group *group, enum dcpk_reduction reduction, void *all,
                               size_t n, uint64_t *ticket, struct dcpk_error *e)
{
    int64_t *numbers = all;

    (void)ticket;
    (void)e;
    CHECK_EQ_INT(reduction, DCPK_SUM_I64, "integers");
    for (size_t i = 0; i < n && group->n_ranks == 2; i++)
        if (!other_has_no_windows)
            numbers[i] *= 2;
    return DCPK_OK;
}

static const struct dcpk_collectives fake = {.name = "fake",
                                             .all_reduce = fake_reduce,
                                             .buffer_alloc = fake_alloc,
                                             .buffer_free = fake_free,
                                             .buffer_register = fake_register,
                                             .buffer_unregister = fake_unregister};
static const struct dcpk_collectives bare = {.name = "bare", .all_reduce = fake_reduce};

/* timeout_ms: the number of the group in `seen`. */
static struct dcpk_group world = {.by = &fake, .n_ranks = 2, .timeout_ms = 0};
static struct dcpk_group gathers = {.by = &fake, .n_ranks = 2, .timeout_ms = 1};
static struct dcpk_group reduces = {.by = &fake, .n_ranks = 2, .timeout_ms = 2};
static struct dcpk_group alone = {.by = &fake, .n_ranks = 1, .timeout_ms = 3};

static void note(void *context, const char *text, size_t n_bytes)
{
    const size_t n = strlen(noted);

    (void)context;
    CHECK(n_bytes > 0 && text[n_bytes - 1] == '\n', "a line");
    snprintf(noted + n, sizeof noted - n, "%.*s", (int)n_bytes, text);
}

static struct dcpk_train_config config;
static struct dcpk_train_job job = {.config = &config, .world = &world, .notes = note};

static int set_up(void **state)
{
    (void)state;
    seen[0] = noted[0] = '\0';
    n_known = 0;
    windows_are = DCPK_REGISTERED_WINDOW;
    locals_are = DCPK_REGISTERED_LOCALLY;
    lacks_buffers = other_has_no_windows = fails = false;
    world.by = &fake;
    world.n_ranks = 2;
    config =
        (struct dcpk_train_config){.fsdp = {.has_user_buffers = true, .registers_by_hand = true}};
    if (job.math == NULL && dcpk_math_open(&dcpk_cpu_ops, 0, &job.math, &err) != DCPK_OK)
        return 1;
    job.math->device->gpu_major = 9;
    return 0;
}

static struct dcpk_user_buffers *make(void)
{
    struct dcpk_user_buffers *made;

    CHECK_OK(dcpk_user_buffers_new(&job, false, &made, &err), "new");
    CHECK(made != NULL, "there are some");
    CHECK_EQ_STR(seen, "alloc 0.1 free 0.1 ", "tried");
    seen[0] = '\0';
    n_known = 0;
    dcpk_user_buffers_join(made, DCPK_BUFFER_GATHER, &gathers);
    dcpk_user_buffers_join(made, DCPK_BUFFER_REDUCE, &reduces);
    dcpk_user_buffers_join(made, DCPK_BUFFER_REDUCE, &gathers);
    dcpk_user_buffers_join(made, DCPK_BUFFER_GATHER, &alone);
    dcpk_user_buffers_join(made, DCPK_BUFFER_GATHER, NULL);
    return made;
}

static void *take(struct dcpk_user_buffers *b, enum dcpk_buffer_use use, size_t n_bytes)
{
    void *at = NULL;

    CHECK_OK(dcpk_user_buffers_take(b, use, n_bytes, &at, &err), "take");
    return at;
}

static void check_calls(const char *want, const char *label)
{
    CHECK_EQ_STR(seen, want, label);
    seen[0] = '\0';
}

/* A buffer of gathers, 1, which group 1 has; one of reductions, 2, which both groups have. */
static struct dcpk_user_buffers *make_two(void)
{
    struct dcpk_user_buffers *b = make();

    take(b, DCPK_BUFFER_GATHER, 800);
    take(b, DCPK_BUFFER_REDUCE, 1000);
    check_calls("alloc 0.1 alloc 0.2 ", "two buffers");
    return b;
}

static void end(struct dcpk_user_buffers *b)
{
    dcpk_user_buffers_unregister(b);
    check_calls("undo 1.1 undo 1.2 undo 2.2 ", "undone before memory is freed");
    dcpk_user_buffers_free(b);
    check_calls("free 0.1 free 0.2 ", "freed");
}

static void reuses_what_is_given_back(void **state)
{
    struct dcpk_user_buffers *b = make();
    void *first = take(b, DCPK_BUFFER_REDUCE, 1000), *second = take(b, DCPK_BUFFER_REDUCE, 1000);

    (void)state;
    check_calls("alloc 0.1 alloc 0.2 ", "both are taken");
    dcpk_user_buffers_give(b, first);
    CHECK(take(b, DCPK_BUFFER_GATHER, 1000) != first, "of another use");
    CHECK(take(b, DCPK_BUFFER_REDUCE, 999) != first, "of another size");
    check_calls("alloc 0.3 alloc 0.4 ", "new ones");
    dcpk_user_buffers_give(b, second);
    CHECK(take(b, DCPK_BUFFER_REDUCE, 1000) == first, "one of the two");
    CHECK(take(b, DCPK_BUFFER_REDUCE, 1000) == second, "the other one");
    check_calls("", "kept");
    CHECK(take(b, DCPK_BUFFER_REDUCE, 0) != NULL, "no bytes");
    dcpk_user_buffers_give(b, NULL);
    dcpk_user_buffers_free(b);
}

static void registers_by_hand_after_the_first_iteration(void **state)
{
    struct dcpk_user_buffers *b = make_two();

    (void)state;
    CHECK_OK(dcpk_user_buffers_register(b, 0, &err), "at the beginning");
    check_calls("", "not at the beginning");
    CHECK_OK(dcpk_user_buffers_register(b, 1, &err), "after an iteration");
    check_calls("window 1.1 window 1.2 window 2.2 ", "each group has its own, in order");
    CHECK_OK(dcpk_user_buffers_register(b, 2, &err), "after two");
    check_calls("", "once");
    CHECK_EQ_STR(noted,
                 "nccl_ub: rank 0 registered 1800 bytes (buffers: 2), as symmetric windows\n",
                 "noted");
    end(b);
}

static void registers_when_made(void **state)
{
    struct dcpk_user_buffers *b;

    (void)state;
    config.fsdp.registers_by_hand = false;
    b = make_two();
    CHECK_OK(dcpk_user_buffers_register(b, 0, &err), "at the beginning");
    check_calls("window 1.1 window 1.2 window 2.2 ", "at the beginning");
    take(b, DCPK_BUFFER_GATHER, 200);
    CHECK_OK(dcpk_user_buffers_register(b, 1, &err), "after an iteration");
    check_calls("alloc 0.3 window 1.3 ", "what is new");
    dcpk_user_buffers_unregister(b);
    check_calls("undo 1.1 undo 1.2 undo 1.3 undo 2.2 ", "all of them");
    dcpk_user_buffers_free(b);
    CHECK_EQ_STR(noted,
                 "nccl_ub: rank 0 registered 1800 bytes (buffers: 2), as symmetric windows\n"
                 "nccl_ub: rank 0 registered 2000 bytes (buffers: 3), as symmetric windows\n",
                 "noted");
}

#define FALLS_BACK                                                                                 \
    "window 1.1 window 1.2 undo 1.1 undo 1.2 local 1.1 local 1.2 window 2.2 undo 2.2 local 2.2 "
#define LOCALLY "nccl_ub: rank 0 registered 1800 bytes (buffers: 2), locally"

/* Windows where there are none, on this rank or another one; none wanted; nothing registered. */
static void registers_locally(void **state)
{
    static const struct {
        const char *label;
        enum dcpk_registration windows_are, locals_are;
        bool other_has_no_windows, is_asked_for;
        const char *calls, *line;
    } rows[] = {
        {"S1-19: no windows", DCPK_NOT_REGISTERED, DCPK_REGISTERED_LOCALLY, false, false,
         FALLS_BACK, LOCALLY ": there are no symmetric windows\n"},
        {"S1-19: a window that is local", DCPK_REGISTERED_LOCALLY, DCPK_REGISTERED_LOCALLY, false,
         false, FALLS_BACK, LOCALLY ": there are no symmetric windows\n"},
        {"S1-19: none on another rank", DCPK_REGISTERED_WINDOW, DCPK_REGISTERED_LOCALLY, true,
         false, FALLS_BACK, LOCALLY ": there are no symmetric windows\n"},
        {"none wanted", DCPK_REGISTERED_WINDOW, DCPK_REGISTERED_LOCALLY, false, true,
         "local 1.1 local 1.2 local 2.2 ", LOCALLY "\n"},
        {"nothing", DCPK_NOT_REGISTERED, DCPK_NOT_REGISTERED, false, false, FALLS_BACK,
         "nccl_ub registers nothing: 'fake' takes no registrations\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dcpk_user_buffers *b;

        set_up(NULL);
        config.fsdp.has_local_registration = rows[i].is_asked_for;
        b = make_two();
        windows_are = rows[i].windows_are;
        locals_are = rows[i].locals_are;
        other_has_no_windows = rows[i].other_has_no_windows;
        CHECK_OK(dcpk_user_buffers_register(b, 1, &err), rows[i].label);
        check_calls(rows[i].calls, rows[i].label);
        CHECK_EQ_STR(noted, rows[i].line, rows[i].label);
        end(b);
    }
}

/* The run goes on without, and says why; where no GPU computes knobs have said so. */
static void does_without(void **state)
{
    static const struct {
        const char *label;
        const struct dcpk_collectives *by;
        int n_ranks, gpu_major;
        bool lacks_buffers, other_lacks_them;
        const char *line;
    } rows[] = {
        {"an old library", &fake, 2, 9, true, false,
         "nccl_ub registers nothing: the library is too old\n"},
        {"another rank's", &fake, 2, 9, false, true,
         "nccl_ub registers nothing: another rank has no user buffers\n"},
        {"others", &bare, 2, 9, false, false,
         "nccl_ub registers nothing: collectives of 'bare' have none\n"},
        {"one rank", &fake, 1, 9, false, false,
         "nccl_ub registers nothing: a run of one rank sends nothing\n"},
        {"no GPU", &fake, 2, 0, false, false, ""},
    };
    struct dcpk_user_buffers *b;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_up(NULL);
        world.by = rows[i].by;
        world.n_ranks = rows[i].n_ranks;
        job.math->device->gpu_major = rows[i].gpu_major;
        lacks_buffers = rows[i].lacks_buffers;
        other_has_no_windows = rows[i].other_lacks_them; /* its number is 0 */
        CHECK_OK(dcpk_user_buffers_new(&job, false, &b, &err), rows[i].label);
        CHECK(b == NULL, rows[i].label);
        CHECK_EQ_STR(noted, rows[i].line, rows[i].label);
    }
    set_up(NULL);
    config.fsdp.has_user_buffers = false;
    CHECK_OK(dcpk_user_buffers_new(&job, false, &b, &err), "not asked for");
    CHECK(b == NULL && noted[0] == '\0', "not asked for");
    CHECK_OK(dcpk_user_buffers_register(NULL, 1, &err), "none");
    dcpk_user_buffers_unregister(NULL);
    dcpk_user_buffers_free(NULL);
}

static void fails_with_the_library(void **state)
{
    struct dcpk_user_buffers *b = make_two();
    void *at;

    (void)state;
    fails = true;
    CHECK_EQ_INT(dcpk_user_buffers_register(b, 1, &err), DCPK_EIO, "register");
    CHECK_EQ_STR(err.text, "the network broke", "register");
    dcpk_error_clear(&err);
    lacks_buffers = true;
    CHECK_EQ_INT(dcpk_user_buffers_take(b, DCPK_BUFFER_GATHER, 9, &at, &err), DCPK_EUNSUPPORTED,
                 "take");
    dcpk_error_clear(&err);
    CHECK_EQ_STR(noted, "", "nothing was registered");
    dcpk_user_buffers_unregister(b);
    check_calls("", "nothing to undo");
    dcpk_user_buffers_free(b);
}

static int close_math(void **state)
{
    (void)state;
    job.math->device->ops->close(job.math->device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(reuses_what_is_given_back, set_up),
        cmocka_unit_test_setup(registers_by_hand_after_the_first_iteration, set_up),
        cmocka_unit_test_setup(registers_when_made, set_up),
        cmocka_unit_test_setup(registers_locally, set_up),
        cmocka_unit_test_setup(does_without, set_up),
        cmocka_unit_test_setup(fails_with_the_library, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, close_math);
}
