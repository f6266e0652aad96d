/* SPDX-License-Identifier: Apache-2.0 */
/* test_remap_refused.c - shards that do not fit, memory that is short or cannot be shared, bytes
 * that change: what the message names, the same on all ranks. */
#include "tests/fault/remap_scene.h"

/* ---- what one rank gives, against the others ---- */
enum spoil { GAP, OUTSIDE, SHAPE, DTYPE, RANK, ON_TARGET, ON_SOURCE, NO_CAST, N_SPOILS };

static const struct {
    const char *label;
    dcpk_status status;
    const char *message;
} spoils[] = {
    [GAP] = {"a gap", DCPK_EMISMATCH, "which no source holds"},
    [OUTSIDE] = {"outside", DCPK_EMISMATCH, "lies outside its tensor ["},
    [SHAPE] = {"shape", DCPK_EMISMATCH, " belongs to a tensor ["},
    [DTYPE] = {"dtype", DCPK_EMISMATCH, ", others of the tensor on this side are "},
    [RANK] = {"axes", DCPK_EMISMATCH, " belongs to a tensor []"},
    [ON_TARGET] = {"on a target", DCPK_EMISMATCH, "memory"},
    [ON_SOURCE] = {"on a source", DCPK_EMISMATCH, "the source of rank "},
    [NO_CAST] = {"no cast", DCPK_EUNSUPPORTED, " cannot be cast from "},
};

static int64_t spoilt_span[10], spoilt_shape[5];

/* A shard with axes, of a tensor of which this side has others; it may then be changed. */
static struct dcpk_shard *find_shard(struct case_side *side, bool has_others)
{
    for (size_t i = 0; i < side->n; i++) {
        struct dcpk_shard *s = &side->shards[i];
        bool others = false;

        for (size_t k = 0; k < i; k++)
            others = others || side->shards[k].name == s->name;
        if (s->rank > 0 && !case_is_empty(s) && others == has_others)
            return s;
    }
    return NULL;
}

/* Put a target where another shard of its rank begins. */
static bool move_onto(struct remap_case *c, const struct case_side *other)
{
    struct case_side *side = &c->sides[1];

    for (size_t i = 0; i < side->n; i++)
        for (size_t k = 0; k < other->n; k++) {
            const struct dcpk_shard *at = &other->shards[k];

            if (at == &side->shards[i] || at->holder != side->shards[i].holder ||
                at->name == side->shards[i].name || case_is_empty(at) ||
                case_is_empty(&side->shards[i]))
                continue;
            side->shards[i].at = at->at;
            return true;
        }
    return false;
}

/* Change one shard; false where the case has none to change. */
static bool spoil_case(struct remap_case *c, enum spoil spoil)
{
    struct dcpk_shard *s = find_shard(&c->sides[1], spoil != GAP && spoil != OUTSIDE);

    if (spoil == ON_TARGET || spoil == ON_SOURCE)
        return move_onto(c, &c->sides[spoil == ON_TARGET]);
    if (s == NULL)
        return false;
    memcpy(spoilt_span, s->span, 2 * (size_t)s->rank * sizeof *s->span);
    memcpy(spoilt_shape, s->shape, (size_t)s->rank * sizeof *s->shape);
    switch (spoil) {
    case GAP: /* sources under another name */
        for (size_t i = 0; i < c->sides[0].n; i++)
            if (strcmp(c->sides[0].shards[i].name, s->name) == 0)
                c->sides[0].shards[i].name = "other";
        break;
    case OUTSIDE:
        spoilt_span[0] = s->shape[0] - s->span[s->rank] + 1;
        s->span = spoilt_span;
        break;
    case SHAPE:
        spoilt_shape[0]++;
        s->shape = spoilt_shape;
        break;
    case RANK:
        s->rank = 0;
        break;
    case DTYPE:
        s->dtype = s->dtype == DCPK_F32 ? DCPK_F64 : DCPK_F32;
        break;
    case NO_CAST: /* on both sides one of them is no float */
        for (size_t i = 0; i < c->sides[1].n; i++)
            if (strcmp(c->sides[1].shards[i].name, s->name) == 0)
                c->sides[1].shards[i].dtype = DCPK_U8;
        for (size_t i = 0; i < c->sides[0].n; i++)
            if (strcmp(c->sides[0].shards[i].name, s->name) == 0)
                c->sides[0].shards[i].dtype = DCPK_I8;
        break;
    case ON_TARGET:
    case ON_SOURCE:
    case N_SPOILS:
        break;
    }
    return true;
}

/* A message names the tensor, and but for dtypes also rank and box. */
static void check_named(const char *text, enum spoil spoil)
{
    CHECK(strstr(text, spoils[spoil].message) != NULL, text);
    CHECK(strstr(text, "'t") != NULL, text);
    CHECK(spoil == NO_CAST || (strstr(text, "rank ") != NULL && strstr(text, "' [") != NULL), text);
}

/* Shards that share a range of memory, of which it cannot be seen whether they meet. */
static bool is_unseen(const char *text)
{
    return strstr(text, "share a range of memory with different strides") != NULL;
}

static void shards_that_do_not_fit(void **state)
{
    (void)state;
    for (int spoil = 0; spoil < N_SPOILS; spoil++) {
        int n_spoilt = 0;

        for (uint64_t seed = 4000; n_spoilt < 4; seed++) {
            struct remap_job job = {.c = the_case, .to = 1, .n_runs = 1, .after = see_units};

            make_case(seed);
            begin_round(the_case);
            if (spoil_case(the_case, (enum spoil)spoil)) {
                job.options.path = (enum dcpk_remap_path)(seed % 3);
                job_run(&job, 0, spoils[spoil].label);
                check_same_end(&job, spoils[spoil].label);
                CHECK(job.ends[0] == spoils[spoil].status || is_unseen(job.errs[0].text),
                      job.errs[0].text);
                check_named(job.errs[0].text, (enum spoil)spoil);
                n_spoilt++;
            }
            case_release(the_case);
            CHECK(seed < 4200, "cases to spoil");
        }
    }
}

/* ---- memory ---- */

/* One rank's device has no memory for what the plan needs. */
static dcpk_status short_alloc(struct dcpk_device *device, enum dcpk_memory_kind kind,
                               size_t n_bytes, void **at, struct dcpk_error *err)
{
    if (rank_self != 1)
        return faulty_real->alloc(device, kind, n_bytes, at, err);
    return faulty_real->alloc(device, kind, SIZE_MAX / 4, at, err);
}

static dcpk_status nothing_fails(struct dcpk_error *err)
{
    (void)err;
    return DCPK_OK;
}

static void memory_is_short(void **state)
{
    struct remap_job job = {.c = the_case,
                            .to = 1,
                            .n_runs = 1,
                            .device = &faulty_ops,
                            .after = see_units,
                            .options = {.path = DCPK_REMAP_STAGED, .checks = true}};
    char wanted[64];

    (void)state;
    faulty_begin(nothing_fails, dcpk_links[0]);
    faulty_ops.alloc = short_alloc;
    make_case(2007);
    begin_round(the_case);
    job_run(&job, 0, "memory");
    check_same_end(&job, "memory");
    CHECK_EQ_INT(job.ends[0], DCPK_ENOMEM, "memory");
    snprintf(wanted, sizeof wanted, "rank 1 of 3: out of memory: %zu bytes asked, ", SIZE_MAX / 4);
    CHECK(strncmp(job.errs[0].text, wanted, strlen(wanted)) == 0, job.errs[0].text);
    CHECK(strstr(job.errs[0].text, " are free") != NULL, job.errs[0].text);
    case_release(the_case);
}

/*
 * A byte of each target of a rank changes before it is checked: the tensor is named on all ranks.
 */
static struct dcpk_device_ops flipping_ops;
static _Thread_local int n_waits, n_flipped; /* of a rank, in a job */

static dcpk_status flipping_ticket(struct dcpk_device *device, int queue, uint64_t *ticket,
                                   struct dcpk_error *err)
{
    n_waits++;
    return faulty_real->ticket(device, queue, ticket, err);
}

static dcpk_status flipping_run(struct dcpk_device *device, int queue,
                                const struct dcpk_table *table, uint64_t *sums,
                                struct dcpk_error *err)
{
    const struct case_side *side = &the_case->sides[1];

    /* The first wait is for sums of zero; behind the next ones all have moved, and met. */
    if (rank_self == 1 && n_waits > 1 && n_flipped++ == 0)
        for (size_t i = 0; i < side->n; i++)
            if (side->shards[i].holder == 1 && !case_is_empty(&side->shards[i]))
                *(uint8_t *)(uintptr_t)side->shards[i].at ^= 0x10;
    return faulty_real->run(device, queue, table, sums, err);
}

static dcpk_status flipping_open(const struct dcpk_device_options *options,
                                 struct dcpk_device **device, struct dcpk_error *err)
{
    const dcpk_status st = faulty_real->open(options, device, err);

    if (st == DCPK_OK)
        (*device)->ops = &flipping_ops;
    n_waits = n_flipped = 0;
    return st;
}

/* The message names tensor, unit and both sums. */
static void check_fingerprints(const char *text)
{
    char name[8];
    uint64_t sent, arrived;
    size_t unit;

    CHECK_EQ_INT(sscanf(text,
                        "'%7[^']' (unit %zu): what was sent has the fingerprint %" SCNx64
                        ", what has arrived %" SCNx64,
                        name, &unit, &sent, &arrived),
                 4, text);
    CHECK(name[0] == 't' && unit == 0 && sent != arrived, text);
}

static void flipped_bytes_are_found(void **state)
{
    size_t n_found = 0;

    (void)state;
    faulty_begin(nothing_fails, dcpk_links[0]);
    flipping_ops = *faulty_real;
    flipping_ops.open = flipping_open;
    flipping_ops.run = flipping_run;
    flipping_ops.ticket = flipping_ticket;
    for (uint64_t seed = 3000; seed < 3040; seed++) {
        struct remap_job job = {
            .c = the_case, .to = 1, .n_runs = 1, .device = &flipping_ops, .after = see_units};
        bool is_right = true;

        job.options = (struct dcpk_remap_options){.path = DCPK_REMAP_DIRECT, .checks = true};
        make_case(seed);
        begin_round(the_case);
        job_run(&job, 0, "flipped");
        check_same_end(&job, "flipped");
        for (int r = 0; r < N_RANKS; r++)
            is_right = is_right &&
                       memcmp(the_case->want[r], the_case->sides[1].memory[r], CASE_BYTES) == 0;
        CHECK_EQ_INT(job.ends[0] == DCPK_OK, is_right,
                     "an error where, and only where, it is wrong");
        if (!is_right)
            check_fingerprints(job.errs[0].text);
        n_found += !is_right;
        case_release(the_case);
    }
    CHECK(n_found > 5, "some are wrong");
}

/* ---- ranks that do not reach each other ---- */

static dcpk_status far_import(struct dcpk_device *device, const struct dcpk_memory_id *id,
                              void **at, struct dcpk_error *err)
{
    (void)device;
    (void)id;
    (void)at;
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "no peer access");
}

/* One rank's memory cannot be shared: the others hear why. */
static dcpk_status private_export(struct dcpk_device *device, const void *at, size_t n_bytes,
                                  struct dcpk_memory_id *id, struct dcpk_error *err)
{
    if (rank_self == 1)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "no peer access");
    return faulty_real->export_memory(device, at, n_bytes, id, err);
}

/* Asked for directly, without a link, and where either will do. */
static void try_paths(const char *label)
{
    struct remap_job job = {
        .c = the_case, .to = 1, .n_runs = 1, .device = &faulty_ops, .after = see_units};
    uint64_t n_messages = 0;

    make_case(2007);
    begin_round(the_case);
    job.options.path = DCPK_REMAP_DIRECT;
    job_run(&job, 0, label);
    check_same_end(&job, label);
    CHECK_EQ_INT(job.ends[0], DCPK_EUNSUPPORTED, label);
    CHECK(strstr(job.errs[0].text, "links are switched off: no peer access") != NULL,
          job.errs[0].text);
    job.options.path = DCPK_REMAP_AUTO;
    job.has_no_link = true;
    job_run(&job, 0, label);
    check_same_end(&job, label);
    CHECK_EQ_INT(job.ends[0], DCPK_EUNSUPPORTED, label);
    CHECK(strstr(job.errs[0].text, "there is no link: no peer access") != NULL, job.errs[0].text);
    job.has_no_link = false;
    job_run(&job, 0, label);
    job_check_ends(&job, label);
    case_check(the_case, label);
    for (int r = 0; r < N_RANKS; r++) {
        CHECK_EQ_STR(job.notes[r], "no peer access", label);
        n_messages += job.stats[r].n_messages;
    }
    CHECK(n_messages > 0, label);
    case_release(the_case);
}

static void ranks_that_do_not_reach_each_other(void **state)
{
    (void)state;
    faulty_begin(nothing_fails, dcpk_links[0]);
    faulty_ops.import_memory = far_import;
    try_paths("import");
    faulty_ops.import_memory = faulty_import;
    faulty_ops.export_memory = private_export;
    try_paths("export");
}

/* What is not wanted has no note. */
static void notes_are_of_those_that_talk(void **state)
{
    struct remap_job job = {.c = the_case, .to = 1, .n_runs = 1, .device = &faulty_ops};

    (void)state;
    faulty_begin(nothing_fails, dcpk_links[0]);
    faulty_ops.import_memory = far_import;
    job.options.path = DCPK_REMAP_STAGED;
    make_case(2007);
    begin_round(the_case);
    job_run(&job, 0, "staged");
    job_check_ends(&job, "staged");
    for (int r = 0; r < N_RANKS; r++)
        CHECK_EQ_STR(job.notes[r], "", "staged as was asked");
    the_case->sides[1].n = 0;
    job.options.path = DCPK_REMAP_AUTO;
    job_run(&job, 0, "nothing");
    job_check_ends(&job, "nothing");
    for (int r = 0; r < N_RANKS; r++)
        CHECK_EQ_STR(job.notes[r], "", "none talk");
    case_release(the_case);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_that_do_not_fit),
        cmocka_unit_test(memory_is_short),
        cmocka_unit_test(flipped_bytes_are_found),
        cmocka_unit_test(ranks_that_do_not_reach_each_other),
        cmocka_unit_test(notes_are_of_those_that_talk),
    };

    return cmocka_run_group_tests(tests, case_begin_tests, case_end_tests);
}
