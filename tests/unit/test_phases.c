/* SPDX-License-Identifier: Apache-2.0 */
/* test_phases.c - the time of a rank by phase: on a device with a clock of its own, and by the
 * host's; ranges that profilers see; a clock that fails. */
#include <stdio.h>
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "lib/base/clock.h"
#include "lib/train/phases.h"
#include "tests/check.h"

static struct dcpk_error err = DCPK_ERROR_INIT;

/* A queue whose time is `now`, in seconds: work that is queued moves it. */
static struct clocked {
    struct dcpk_device base;
    double now, marks[64];
    size_t n_marks;
    bool fails;
} gpu;

static dcpk_status fake_mark(struct dcpk_device *device, size_t number, struct dcpk_error *e)
{
    struct clocked *c = (struct clocked *)device;

    CHECK(number <= c->n_marks && number < 64, "at most one more than the highest");
    if (c->fails)
        return dcpk_fail(e, DCPK_EIO, "the clock broke");
    if (number == c->n_marks)
        c->n_marks++;
    c->marks[number] = c->now;
    return DCPK_OK;
}

static dcpk_status fake_between(struct dcpk_device *device, size_t from, size_t to, double *seconds,
                                struct dcpk_error *e)
{
    const struct clocked *c = (const struct clocked *)device;

    (void)e;
    CHECK(from < to && to < c->n_marks, "a mark and a later one");
    *seconds = c->marks[to] - c->marks[from];
    return DCPK_OK;
}

static const struct dcpk_device_ops clocked_ops = {.mark = fake_mark, .between = fake_between};
static const struct dcpk_collectives streams = {.is_device = true};

static char seen[256]; /* of ranges: "(" name, ")" */

static void fake_push(const char *name)
{
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "(%s", name);
}

static void fake_pop(void)
{
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), ")");
}

static const struct dcpk_ranges ranges = {.push = fake_push, .pop = fake_pop};

/* An iteration of two layers: a phase inside another one is not counted twice. */
static void iterate(struct dcpk_phases *p)
{
    const enum dcpk_phase before = dcpk_phase_enter(p, DCPK_PHASE_BACKWARD);

    gpu.now += 4;
    for (int i = 0; i < 2; i++) {
        const enum dcpk_phase outer = dcpk_phase_enter(p, DCPK_PHASE_REDUCE);

        gpu.now += 1;
        dcpk_phase_leave(p, outer);
        gpu.now += 8;
    }
    dcpk_phase_leave(p, before);
    gpu.now += 2;
}

static void test_device(void **state)
{
    struct dcpk_group group = {.by = &streams};
    struct dcpk_phases *p;
    struct dcpk_times times;

    (void)state;
    gpu = (struct clocked){.base.ops = &clocked_ops};
    CHECK_OK(dcpk_phases_new(&gpu.base, &ranges, true, &p, &err), "new");
    dcpk_phases_watch(p, &group);
    for (int i = 1; i <= 2; i++) {
        iterate(p);
        group.busy->gather += 3 * i;
        group.busy->reduce += 0.5;
        CHECK_OK(dcpk_phases_take(p, &times, &err), "take");
        CHECK(times.phase[DCPK_PHASE_BACKWARD] == 20, "backward");
        CHECK(times.phase[DCPK_PHASE_REDUCE] == 2, "reduce");
        CHECK(times.phase[DCPK_PHASE_OTHER] == 2, "other");
        CHECK(times.phase[DCPK_PHASE_FORWARD] == 0, "forward");
        CHECK(times.has_streams && times.busy.gather == 3 * i && times.busy.reduce == 0.5,
              "each call once, however often times are taken");
    }
    CHECK_EQ_INT(gpu.n_marks, 8, "marks are used again");
    CHECK_EQ_STR(seen, "(backward(reduce)(reduce))(backward(reduce)(reduce))", "ranges");
    (void)dcpk_phase_enter(p, DCPK_PHASE_SAVE);
    dcpk_phases_free(p);
    CHECK_EQ_STR(strrchr(seen, '('), "(save)", "a run that ends inside a phase closes it");
}

/* The host's clock: phases are all of the time, to the last nanosecond but one. */
static void test_host(void **state)
{
    struct dcpk_device *host;
    struct dcpk_phases *p;
    struct dcpk_times times;
    double sum = 0, begun;

    (void)state;
    CHECK_OK(dcpk_cpu_device.open(&(struct dcpk_device_options){0}, &host, &err), "host");
    CHECK_OK(dcpk_phases_new(host, NULL, true, &p, &err), "new");
    begun = dcpk_now_seconds();
    iterate(p);
    while (dcpk_now_seconds() < begun + 0.002)
        iterate(p);
    CHECK_OK(dcpk_phases_take(p, &times, &err), "take");
    for (int i = 0; i < DCPK_N_PHASES; i++) {
        CHECK(times.phase[i] >= 0, dcpk_phase_names[i]);
        sum += times.phase[i];
    }
    CHECK(times.all >= 0.002 && sum <= times.all + 1e-9, "no more than what passed");
    CHECK(!times.has_streams, "streams");
    dcpk_phases_free(p);
    dcpk_cpu_device.close(host);
}

/* Turns have no status: the next take has it. Without timing there is no clock. */
static void test_failure(void **state)
{
    struct dcpk_phases *p;
    struct dcpk_times times;

    (void)state;
    gpu = (struct clocked){.base.ops = &clocked_ops};
    CHECK_OK(dcpk_phases_new(&gpu.base, NULL, true, &p, &err), "new");
    gpu.fails = true;
    iterate(p);
    CHECK_EQ_INT(dcpk_phases_take(p, &times, &err), DCPK_EIO, "take");
    CHECK_EQ_STR(err.text, "the clock broke", "reason");
    dcpk_phases_free(p);
    dcpk_error_clear(&err);
    seen[0] = '\0';
    CHECK_OK(dcpk_phases_new(&gpu.base, &ranges, false, &p, &err), "ranges alone");
    iterate(p);
    dcpk_phases_free(p);
    CHECK_EQ_STR(seen, "(backward(reduce)(reduce))", "ranges");
    iterate(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_device), cmocka_unit_test(test_host),
                                       cmocka_unit_test(test_failure)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
