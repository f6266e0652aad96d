/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - a program of somebody else's: moves tensors between ranks that are threads, by the
 * installed library. Valid C and C++. */
/*
 * Every rank holds boxes of random tensors and wants others; what it gets must be the box of the
 * whole. Then what cannot be: targets that are not covered or overlap, options that differ, an
 * all_gather that fails. Prints one line; exit 1 when something is not as it should be.
 */
#include <dcpkit.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_RANKS   4
#define N_TENSORS 3
#define N_ROUNDS  12
#define MOST      4096 /* elements of a tensor */
#define POISON    (-1.0)

static __thread dcpkit *session;

#define MUST(what)                                                                                 \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what,                          \
                    session == NULL ? "" : dcpkit_error(session));                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* --- a world of threads --- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    const void *given[N_RANKS];
    int n_in, n_out;
    unsigned long n_calls, fails_at; /* of all ranks; 0: never */
    int is_over, is_idle;            /* idle: answers 0 without a byte */
} meeting = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {NULL}, 0, 0, 0, 0, 0, 0};

struct self {
    int rank;
    int n_updates;
};

/* All come in, copy what the others gave, and leave together. */
static int gather(void *context, const void *mine, size_t n_bytes, void *all)
{
    const struct self *self = (const struct self *)context;
    int is_over;

    if (meeting.is_idle)
        return 0;
    pthread_mutex_lock(&meeting.mutex);
    meeting.n_calls++;
    if (meeting.n_calls == meeting.fails_at)
        meeting.is_over = 1;
    while (meeting.n_out > 0 && !meeting.is_over) /* of the call before */
        pthread_cond_wait(&meeting.changed, &meeting.mutex);
    meeting.given[self->rank] = mine;
    meeting.n_in++;
    pthread_cond_broadcast(&meeting.changed);
    while (meeting.n_in < N_RANKS && !meeting.is_over)
        pthread_cond_wait(&meeting.changed, &meeting.mutex);
    is_over = meeting.is_over;
    for (int r = 0; r < N_RANKS && !is_over; r++)
        memcpy((char *)all + (size_t)r * n_bytes, meeting.given[r], n_bytes);
    if (!is_over && ++meeting.n_out == N_RANKS)
        meeting.n_in = meeting.n_out = 0;
    pthread_cond_broadcast(&meeting.changed);
    while (meeting.n_out > 0 && !meeting.is_over) /* until all have copied */
        pthread_cond_wait(&meeting.changed, &meeting.mutex);
    pthread_mutex_unlock(&meeting.mutex);
    return is_over ? 7 : 0;
}

static void run_ranks(void *(*script)(void *), unsigned long fails_at)
{
    pthread_t threads[N_RANKS];
    struct self selves[N_RANKS];

    meeting.n_in = meeting.n_out = meeting.is_over = 0;
    meeting.n_calls = 0;
    meeting.fails_at = fails_at;
    for (int r = 0; r < N_RANKS; r++) {
        selves[r].rank = r;
        selves[r].n_updates = 0;
        MUST(pthread_create(&threads[r], NULL, script, &selves[r]) == 0);
    }
    for (int r = 0; r < N_RANKS; r++)
        pthread_join(threads[r], NULL);
}

static int engine_open(struct self *self, const struct dcpkit_engine_options *options,
                       dcpkit_engine **engine)
{
    struct dcpkit_world world;

    world.rank = self->rank;
    world.n_ranks = N_RANKS;
    world.context = self;
    world.all_gather = gather;
    if (session == NULL)
        MUST(dcpkit_new(NULL, &session) == DCPKIT_OK);
    return dcpkit_engine_open(session, &world, options, engine);
}

/* --- random tensors, the same on all ranks --- */

static unsigned long random_state;

static long random_below(unsigned long *state, long n)
{
    *state = *state * 6364136223846793005ul + 1442695040888963407ul;
    return (long)((*state >> 33) % (unsigned long)n);
}

/* One side of a tensor: an axis cut at cuts[r] among the ranks; or all of it on each. */
struct layout {
    int axis, is_replicated;
    int64_t cuts[N_RANKS + 1];
    int64_t pad; /* elements between rows */
};

struct tensor {
    char name[16];
    int rank;
    int64_t shape[3];
    struct layout sides[2];
};

static void layout_make(const struct tensor *t, struct layout *l)
{
    l->axis = (int)random_below(&random_state, t->rank);
    l->is_replicated = random_below(&random_state, 4) == 0;
    l->pad = random_below(&random_state, 3);
    l->cuts[0] = 0;
    for (int r = 0; r < N_RANKS; r++) {
        const int64_t left = t->shape[l->axis] - l->cuts[r];

        l->cuts[r + 1] = r + 1 == N_RANKS ? t->shape[l->axis]
                                          : l->cuts[r] + random_below(&random_state, left + 1);
    }
}

static struct tensor tensors[N_TENSORS];

static void tensors_make(unsigned long seed)
{
    random_state = seed;
    for (int i = 0; i < N_TENSORS; i++) {
        struct tensor *t = &tensors[i];

        snprintf(t->name, sizeof t->name, "t%d", i);
        t->rank = 1 + (int)random_below(&random_state, 3);
        for (int a = 0; a < t->rank; a++)
            t->shape[a] = 1 + random_below(&random_state, 14);
        layout_make(t, &t->sides[0]);
        layout_make(t, &t->sides[1]);
    }
}

/* A rank's part of a tensor, in memory of its own: float sources, float or double targets. */
struct local {
    struct dcpkit_shard shard;
    int64_t offset[3], extent[3], stride_bytes[3];
    double memory[MOST];
};

static void local_make(struct local *l, const struct tensor *t, int side, int rank, int is_double)
{
    const struct layout *layout = &t->sides[side];
    int64_t stride = is_double ? (int64_t)sizeof(double) : (int64_t)sizeof(float);

    for (int a = 0; a < t->rank; a++) {
        l->offset[a] = 0;
        l->extent[a] = t->shape[a];
    }
    if (!layout->is_replicated) {
        l->offset[layout->axis] = layout->cuts[rank];
        l->extent[layout->axis] = layout->cuts[rank + 1] - layout->cuts[rank];
    }
    for (int a = t->rank - 1; a >= 0; a--) {
        l->stride_bytes[a] = stride;
        stride *= l->extent[a] + (a == t->rank - 1 ? layout->pad : 0);
    }
    l->shard.name = t->name;
    l->shard.dtype = is_double ? "float64" : "float32";
    l->shard.rank = t->rank;
    l->shard.shape = t->shape;
    l->shard.offset = l->offset;
    l->shard.extent = l->extent;
    l->shard.data = l->memory;
    l->shard.stride_bytes = l->stride_bytes;
}

/* Element [i, j, k] of a tensor, anywhere. */
static double value(const struct tensor *t, const int64_t *index)
{
    int64_t number = t->name[1];

    for (int a = 0; a < t->rank; a++)
        number = number * t->shape[a] + index[a];
    return (double)(number % 100003) * 0.5;
}

/* Visit all elements of a part: fill a source, or compare a target. */
static void local_visit(struct local *l, const struct tensor *t, int fills, int is_double)
{
    int64_t i[3] = {0, 0, 0};
    int a;

    for (a = 0; a < t->rank; a++)
        if (l->extent[a] == 0)
            return;
    do {
        int64_t index[3] = {0, 0, 0}, at = 0;
        char *place;

        for (a = 0; a < t->rank; a++) {
            index[a] = l->offset[a] + i[a];
            at += i[a] * l->stride_bytes[a];
        }
        place = (char *)l->memory + at;
        if (fills)
            *(float *)(void *)place = (float)value(t, index);
        else if (is_double)
            MUST(*(double *)(void *)place == value(t, index));
        else
            MUST(*(float *)(void *)place == (float)value(t, index));
        for (a = t->rank - 1; a >= 0 && ++i[a] == l->extent[a]; a--)
            i[a] = 0;
    } while (a >= 0);
}

/* --- what ranks do --- */

static const char *transport;
static int casts;

static void count_units(void *context, size_t unit, size_t first_tensor, size_t n_tensors)
{
    struct self *self = (struct self *)context;

    MUST(unit == (size_t)self->n_updates++ && first_tensor + n_tensors <= N_TENSORS);
}

static void compare_sides(dcpkit_map *map)
{
    uint64_t before[N_TENSORS], after[N_TENSORS];

    MUST(dcpkit_map_fingerprint(map, DCPKIT_SOURCES, before, N_TENSORS - 1) == DCPKIT_EUSAGE);
    MUST(dcpkit_map_fingerprint(map, DCPKIT_SOURCES, before, N_TENSORS) == DCPKIT_OK);
    MUST(dcpkit_map_fingerprint(map, DCPKIT_TARGETS, after, N_TENSORS) == DCPKIT_OK);
    MUST(casts || memcmp(before, after, sizeof before) == 0);
}

/* Nothing changed, then one element on all ranks that have it; a caller of an older header. */
static void run_changes(dcpkit_map *map, struct local *sources)
{
    struct dcpkit_map_stats stats = DCPKIT_INIT(struct dcpkit_map_stats);
    const struct local *l = &sources[0];
    float *first = (float *)l->shard.data;
    int has_first = 1;

    for (int a = 0; a < tensors[0].rank; a++)
        has_first &= l->offset[a] == 0 && l->extent[a] > 0;
    MUST(dcpkit_map_run_changed(map, &stats) == DCPKIT_OK);
    MUST(stats.n_sent_blocks == stats.n_blocks && (stats.sent_bytes > 0) == (stats.n_blocks > 0));
    MUST(dcpkit_map_run_changed(map, &stats) == DCPKIT_OK);
    MUST(stats.n_sent_blocks == 0 && stats.sent_bytes == 0 && stats.units_done > 0);
    if (has_first)
        *first += 1;
    MUST(dcpkit_map_run_changed(map, &stats) == DCPKIT_OK);
    MUST(has_first || stats.n_sent_blocks == 0);
    MUST(dcpkit_map_verify(map, NULL, 0) == DCPKIT_OK);
    if (has_first)
        *first -= 1;
    stats.size = offsetof(struct dcpkit_map_stats, n_blocks);
    MUST(dcpkit_map_run_changed(map, &stats) == DCPKIT_OK);
    MUST(dcpkit_map_verify(map, NULL, 0) == DCPKIT_OK);
}

/* What one rank changes in its targets, all hear of: how many tensors differ, and the first. */
static void verify_sides(dcpkit_map *map, int rank, struct local *targets)
{
    uint8_t differs[N_TENSORS], changed = 0;
    float *first = (float *)targets[1].shard.data; /* of a double: its low bits */
    const float was = *first;

    for (int a = 0; a < tensors[1].rank; a++)
        changed |= (uint8_t)(targets[1].extent[a] == 0);
    changed = rank != 2 || changed ? 0 : 1;
    MUST(dcpkit_map_verify(map, differs, N_TENSORS - 1) == DCPKIT_EUSAGE);
    MUST(dcpkit_map_verify(map, differs, N_TENSORS) == DCPKIT_OK);
    MUST(dcpkit_map_verify(map, NULL, 0) == DCPKIT_OK);
    if (changed)
        *first = was + 1;
    if (dcpkit_map_verify(map, differs, N_TENSORS) == DCPKIT_OK) {
        MUST(!changed && differs[0] + differs[1] + differs[2] == 0);
    } else {
        MUST(strstr(dcpkit_error(session), "of 1 of 3 tensors") != NULL);
        for (size_t i = 0; i < N_TENSORS; i++)
            MUST(differs[i] == (strcmp(dcpkit_map_tensor(map, i), "t1") == 0));
        MUST(strstr(dcpkit_error(session), "'t1'") != NULL);
    }
    *first = was;
}

static void *move(void *context)
{
    struct self *self = (struct self *)context;
    struct local *locals = (struct local *)calloc(2 * N_TENSORS, sizeof *locals);
    struct dcpkit_engine_options options = DCPKIT_INIT(struct dcpkit_engine_options);
    struct dcpkit_map_totals totals = DCPKIT_INIT(struct dcpkit_map_totals);
    struct dcpkit_map_stats stats = DCPKIT_INIT(struct dcpkit_map_stats);
    dcpkit_engine *engine;
    dcpkit_map *map;

    options.transport = transport;
    options.unit_bytes = 1000;
    options.staging_bytes = 20000;
    options.link_bytes_a_second = 1e9;
    options.check = 1;
    MUST(locals != NULL && engine_open(self, &options, &engine) == DCPKIT_OK);
    MUST(dcpkit_map_new(engine, &map) == DCPKIT_OK);
    MUST(dcpkit_map_run(map, NULL) == DCPKIT_EUSAGE && dcpkit_map_tensor(map, 0) == NULL);
    MUST(dcpkit_map_verify(map, NULL, 0) == DCPKIT_EUSAGE);
    MUST(dcpkit_map_run_changed(map, NULL) == DCPKIT_EUSAGE);
    MUST(dcpkit_map_checkpoint_tensor(map, 0) == NULL);
    for (int i = 0; i < N_TENSORS; i++) {
        struct local *from = &locals[i], *to = &locals[N_TENSORS + i];

        local_make(from, &tensors[i], 0, self->rank, 0);
        local_make(to, &tensors[i], 1, self->rank, casts);
        local_visit(from, &tensors[i], 1, 0);
        for (int e = 0; e < MOST; e++)
            to->memory[e] = POISON;
        MUST(dcpkit_map_source(map, &from->shard, 1) == DCPKIT_OK);
        MUST(dcpkit_map_target(map, &to->shard, 1) == DCPKIT_OK);
    }
    MUST(dcpkit_map_plan(map, &totals) == DCPKIT_OK);
    MUST(dcpkit_map_plan(map, NULL) == DCPKIT_EUSAGE);
    MUST(totals.n_tensors == N_TENSORS && totals.n_units >= 1 && totals.n_unwanted == 0);
    MUST((totals.link[0] == '\0') == (totals.note[0] == '\0'));
    MUST(transport == NULL || totals.n_direct_peers == 0);
    MUST((totals.all_bytes == 0) == (totals.predicted_seconds == 0));
    MUST(dcpkit_map_tensor(map, N_TENSORS - 1)[0] == 't' && !dcpkit_map_tensor(map, N_TENSORS));
    dcpkit_map_each_unit(map, count_units, self);
    MUST(dcpkit_map_run(map, &stats) == DCPKIT_OK);
    MUST(stats.units_done == totals.n_units && (size_t)self->n_updates == totals.n_units);
    dcpkit_map_each_unit(map, NULL, NULL);
    for (int i = 0; i < N_TENSORS; i++)
        local_visit(&locals[N_TENSORS + i], &tensors[i], 0, casts);
    MUST(dcpkit_map_run(map, NULL) == DCPKIT_OK);
    run_changes(map, locals);
    compare_sides(map);
    verify_sides(map, self->rank, locals + N_TENSORS);
    if (self->rank % 2 == 0) { /* in any order */
        dcpkit_engine_close(engine);
        dcpkit_map_free(map);
    } else {
        dcpkit_map_free(map);
        dcpkit_engine_close(engine);
    }
    dcpkit_free(session);
    session = NULL;
    free(locals);
    return NULL;
}

/* A vector of 8 cut in 4; this rank's part of both sides. */
static void vector_make(struct dcpkit_shard *shard, int rank, float *data)
{
    static const int64_t shape[] = {8}, extent[] = {2};
    static const int64_t offsets[] = {0, 2, 4, 6};

    memset(shard, 0, sizeof *shard);
    shard->name = "vector";
    shard->dtype = "float32";
    shard->rank = 1;
    shard->shape = shape;
    shard->offset = &offsets[rank];
    shard->extent = extent;
    shard->data = data;
}

/* What one rank lists wrongly, all learn from the plan. */
enum fault { UNCOVERED, OVERLAP, UNLISTED, NO_DTYPE, OUTSIDE, N_FAULTS };
static enum fault fault;

static void *be_refused(void *context)
{
    static const int wanted[N_FAULTS] = {DCPKIT_EMISMATCH, DCPKIT_EMISMATCH, DCPKIT_EUSAGE,
                                         DCPKIT_EUSAGE, DCPKIT_EUSAGE};
    struct self *self = (struct self *)context;
    float data[2] = {1, 2}, there[2] = {3, 4};
    static const int64_t far[] = {7};
    struct dcpkit_shard from, to;
    dcpkit_engine *engine;
    dcpkit_map *map;
    int is_at_fault = self->rank == 2, status;

    MUST(engine_open(self, NULL, &engine) == DCPKIT_OK);
    MUST(dcpkit_map_new(engine, &map) == DCPKIT_OK);
    vector_make(&from, self->rank, data);
    vector_make(&to, 3 - self->rank, there);
    if (is_at_fault && fault == NO_DTYPE)
        from.dtype = "float31";
    if (is_at_fault && fault == OUTSIDE)
        from.offset = far;
    status = is_at_fault && fault == UNCOVERED ? DCPKIT_OK : dcpkit_map_source(map, &from, 1);
    MUST(status == (is_at_fault && fault >= NO_DTYPE ? DCPKIT_EUSAGE : DCPKIT_OK));
    MUST(dcpkit_map_target(map, &to, 1) == DCPKIT_OK);
    if (is_at_fault && fault == UNLISTED) {
        dcpkit_map_fail(map, "the vector was lost");
        dcpkit_map_fail(map, "and so was this sentence");
    }
    if (is_at_fault && fault == OVERLAP) {
        to.name = "other";
        from.name = "other";
        from.data = data;
        MUST(dcpkit_map_source(map, &from, 1) == DCPKIT_OK);
        to.offset = from.offset;
        MUST(dcpkit_map_target(map, &to, 1) == DCPKIT_OK);
    }
    MUST(dcpkit_map_plan(map, NULL) == wanted[fault]);
    MUST(strstr(dcpkit_error(session), fault == OVERLAP ? "other" : "vector") != NULL);
    MUST(there[0] == 3 && there[1] == 4 && dcpkit_map_run(map, NULL) == DCPKIT_EUSAGE);
    dcpkit_map_free(map);
    dcpkit_engine_close(engine);
    dcpkit_free(session);
    session = NULL;
    return NULL;
}

/* Every rank must ask for the same, of what there is. */
static void *differ(void *context)
{
    struct self *self = (struct self *)context;
    struct dcpkit_engine_options options = DCPKIT_INIT(struct dcpkit_engine_options);
    dcpkit_engine *engine = NULL;

    options.check = self->rank == 3;
    MUST(engine_open(self, &options, &engine) == DCPKIT_EUSAGE && engine == NULL);
    MUST(strstr(dcpkit_error(session), "ranks 0 and 3") != NULL);
    options.check = 0;
    options.device = self->rank == 1 ? "abacus" : "cpu";
    MUST(engine_open(self, &options, &engine) == DCPKIT_EUSAGE && engine == NULL);
    MUST(strstr(dcpkit_error(session), "abacus") != NULL);
    options.device = NULL;
    options.reserved = self->rank == 1;
    MUST(engine_open(self, &options, &engine) == DCPKIT_EUSAGE && engine == NULL);
    options.reserved = 0;
    options.device = "cpu:3";
    MUST(engine_open(self, &options, &engine) == DCPKIT_EUNSUPPORTED && engine == NULL);
    options.device = NULL;
    options.transport = "nccl"; /* which moves nothing of a processor's memory */
    MUST(engine_open(self, &options, &engine) == DCPKIT_EUNSUPPORTED && engine == NULL);
    dcpkit_free(session);
    session = NULL;
    return NULL;
}

/* An all_gather that answers 0 and has brought nothing is not believed. */
static void *gather_nothing(void *context)
{
    dcpkit_engine *engine = NULL;

    MUST(engine_open((struct self *)context, NULL, &engine) == DCPKIT_EIO && engine == NULL);
    MUST(strstr(dcpkit_error(session), "did not bring back what rank") != NULL);
    dcpkit_free(session);
    session = NULL;
    return NULL;
}

/* Some call of all_gather fails: so does what needs it, on all ranks, and nothing hangs. */
static void *lose_others(void *context)
{
    struct self *self = (struct self *)context;
    float data[2] = {1, 2}, there[2] = {3, 4};
    struct dcpkit_shard from, to;
    dcpkit_engine *engine = NULL;
    dcpkit_map *map = NULL;
    int status = engine_open(self, NULL, &engine);

    vector_make(&from, self->rank, data);
    vector_make(&to, 3 - self->rank, there);
    if (status == DCPKIT_OK) {
        MUST(dcpkit_map_new(engine, &map) == DCPKIT_OK);
        MUST(dcpkit_map_source(map, &from, 1) == DCPKIT_OK);
        MUST(dcpkit_map_target(map, &to, 1) == DCPKIT_OK);
        status = dcpkit_map_plan(map, NULL);
    }
    if (status == DCPKIT_OK)
        status = dcpkit_map_run(map, NULL);
    if (status == DCPKIT_OK)
        status = dcpkit_map_run_changed(map, NULL);
    if (status == DCPKIT_OK)
        status = dcpkit_map_verify(map, NULL, 0);
    MUST(status == DCPKIT_EIO || (status == DCPKIT_OK && !meeting.is_over));
    MUST(status == DCPKIT_OK || strstr(dcpkit_error(session), "all_gather") != NULL);
    MUST(data[0] == 1 && data[1] == 2);
    dcpkit_map_free(map);
    dcpkit_engine_close(engine);
    dcpkit_free(session);
    session = NULL;
    return NULL;
}

/* A process that is alone: from one place of its memory to another. */
static void be_alone(void)
{
    static const int64_t shape[] = {2}, backwards[] = {-(int64_t)sizeof(float)};
    float data[2] = {1, 2}, there[2] = {3, 4};
    struct dcpkit_shard from, to;
    dcpkit_engine *engine;
    dcpkit_map *map;

    vector_make(&from, 0, data);
    from.shape = shape;
    to = from;
    to.data = there + 1;
    to.stride_bytes = backwards;
    MUST(dcpkit_new(NULL, &session) == DCPKIT_OK);
    MUST(dcpkit_engine_open(session, NULL, NULL, &engine) == DCPKIT_OK);
    MUST(dcpkit_map_new(engine, &map) == DCPKIT_OK);
    dcpkit_engine_close(engine);
    MUST(dcpkit_map_source(map, &from, 1) == DCPKIT_OK);
    MUST(dcpkit_map_target(map, &to, 1) == DCPKIT_OK);
    MUST(dcpkit_map_plan(map, NULL) == DCPKIT_OK && dcpkit_map_run(map, NULL) == DCPKIT_OK);
    MUST(there[0] == 2 && there[1] == 1 && dcpkit_map_verify(map, NULL, 0) == DCPKIT_OK);
    data[1] = 3;
    MUST(dcpkit_map_verify(map, NULL, 0) == DCPKIT_EMISMATCH);
    dcpkit_map_free(map);
    dcpkit_map_free(NULL);
    dcpkit_engine_close(NULL);
    dcpkit_free(session);
    session = NULL;
}

int main(void)
{
    static const char *const transports[] = {NULL, "staged", "local", "gather"};
    unsigned long n_calls;

    for (unsigned long seed = 1; seed <= N_ROUNDS; seed++) {
        tensors_make(seed);
        transport = transports[seed % 4];
        casts = seed % 3 == 0;
        run_ranks(move, 0);
    }
    for (int f = 0; f < N_FAULTS; f++) {
        fault = (enum fault)f;
        run_ranks(be_refused, 0);
    }
    run_ranks(differ, 0);
    run_ranks(lose_others, 0);
    n_calls = meeting.n_calls;
    MUST(n_calls >= 10 * N_RANKS);
    for (unsigned long n = 1; n <= n_calls; n++)
        run_ranks(lose_others, n);
    meeting.is_idle = 1;
    run_ranks(gather_nothing, 0);
    be_alone();
    printf("dcpkit %s: engine: as it should be\n", dcpkit_version());
    return 0;
}
