/* SPDX-License-Identifier: Apache-2.0 */
/* run_rng.c - seeds generators as Python, NumPy and torch do, and makes the values that they
 * pickle. */
#include "lib/train/run_rng.h"

#include "lib/base/bytes.h"
#include "lib/base/order.h"

#define N_WORDS         624  /* of MT19937 */
#define TORCH_BYTES     5056 /* struct CPUGeneratorImplState */
#define CUDA_BYTES      16   /* seed, offset */
#define STAGE_SEEDS     100  /* between two pipeline stages */
#define MODEL_PARALLEL  2718
#define EXPERT_PARALLEL 1024

/* ---- MT19937 ---- */

static uint32_t twister_mix(uint32_t word)
{
    return word ^ word >> 30;
}

/* init_genrand */
static void twister_seed(uint32_t words[N_WORDS], uint32_t seed)
{
    words[0] = seed;
    for (uint32_t i = 1; i < N_WORDS; i++)
        words[i] = UINT32_C(1812433253) * twister_mix(words[i - 1]) + i;
}

/* The word after `i`; the last one becomes the first, too. */
static uint32_t twister_next(uint32_t words[N_WORDS], uint32_t i)
{
    if (i + 1 < N_WORDS)
        return i + 1;
    words[0] = words[N_WORDS - 1];
    return 1;
}

/* init_by_array, of an array of one word: Python's way */
static void twister_seed_array(uint32_t words[N_WORDS], uint32_t seed)
{
    uint32_t i = 1;

    twister_seed(words, 19650218);
    for (int k = 0; k < N_WORDS; k++) {
        words[i] = (words[i] ^ twister_mix(words[i - 1]) * UINT32_C(1664525)) + seed;
        i = twister_next(words, i);
    }
    for (int k = 1; k < N_WORDS; k++) {
        words[i] = (words[i] ^ twister_mix(words[i - 1]) * UINT32_C(1566083941)) - i;
        i = twister_next(words, i);
    }
    words[0] = UINT32_C(1) << 31;
}

/* ---- values ---- */

struct making {
    struct dcpk_arena *arena;
    struct dcpk_error *err; /* keeps the first failure */
};

static const struct dcpk_value *make_int(struct making *m, int64_t number)
{
    return dcpk_value_int(m->arena, number, m->err);
}

static const struct dcpk_value *make_str(struct making *m, const char *text)
{
    return dcpk_value_str(m->arena, text, m->err);
}

/* NULL where one of the items is. */
static const struct dcpk_value *make_seq(struct making *m, enum dcpk_value_kind kind,
                                         const struct dcpk_value *const *items, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (items[i] == NULL)
            return NULL;
    return dcpk_value_seq(m->arena, kind, items, n, m->err);
}

/* module.name(*args), with what it is then given as its state. */
static const struct dcpk_value *make_call(struct making *m, const char *module, const char *name,
                                          const struct dcpk_value *args,
                                          const struct dcpk_value *state)
{
    struct dcpk_value_object *object = dcpk_arena_alloc(m->arena, sizeof *object, m->err);
    struct dcpk_value *made = dcpk_arena_alloc(m->arena, sizeof *made, m->err);

    if (object == NULL || made == NULL || args == NULL || state == NULL)
        return NULL;
    *object = (struct dcpk_value_object){.module = module,
                                         .name = name,
                                         .is_reduce = true,
                                         .is_known = true,
                                         .args = args,
                                         .state = state};
    made->kind = DCPK_V_OBJECT;
    made->as.object = object;
    return made;
}

static const struct dcpk_value *make_dict(struct making *m, const char *const *names,
                                          const struct dcpk_value *const *values, size_t n)
{
    struct dcpk_dict dict = {.arena = m->arena, .err = m->err};

    for (size_t i = 0; i < n; i++)
        dcpk_dict_put(&dict, names[i], values[i]);
    return dcpk_dict_end(&dict);
}

/* ---- the generators ---- */

/* random.getstate(): (3, (624 words, the next one's index), None) */
static const struct dcpk_value *python_state(struct making *m, uint32_t seed)
{
    const struct dcpk_value *words[N_WORDS + 1], *state[3];
    uint32_t twister[N_WORDS];

    twister_seed_array(twister, seed);
    for (size_t i = 0; i < N_WORDS; i++)
        words[i] = make_int(m, twister[i]);
    words[N_WORDS] = make_int(m, N_WORDS);
    state[0] = make_int(m, 3);
    state[1] = make_seq(m, DCPK_V_TUPLE, words, N_WORDS + 1);
    state[2] = dcpk_value_none();
    return make_seq(m, DCPK_V_TUPLE, state, 3);
}

/* numpy.dtype('uint32') as it is pickled */
static const struct dcpk_value *numpy_dtype(struct making *m)
{
    const struct dcpk_value *none = dcpk_value_none(), *minus = make_int(m, -1);
    const struct dcpk_value *args[] = {make_str(m, "u4"), dcpk_value_bool(false),
                                       dcpk_value_bool(true)};
    const struct dcpk_value *state[] = {make_int(m, 3), make_str(m, "<"), none, none, none, minus,
                                        minus,          make_int(m, 0)};

    return make_call(m, "numpy", "dtype", make_seq(m, DCPK_V_TUPLE, args, DCPK_COUNT(args)),
                     make_seq(m, DCPK_V_TUPLE, state, DCPK_COUNT(state)));
}

/* An array of uint32, as NumPy 2 pickles it. */
static const struct dcpk_value *numpy_words(struct making *m, const uint32_t words[N_WORDS])
{
    const struct dcpk_value *class = dcpk_value_global(m->arena, "numpy", "ndarray", m->err);
    const struct dcpk_value *zero = make_int(m, 0), *count = make_int(m, N_WORDS);
    const struct dcpk_value *args[3] = {class, make_seq(m, DCPK_V_TUPLE, &zero, 1),
                                        dcpk_value_bytes(m->arena, "b", 1, m->err)};
    const struct dcpk_value *state[5] = {make_int(m, 1), make_seq(m, DCPK_V_TUPLE, &count, 1),
                                         numpy_dtype(m), dcpk_value_bool(false)};
    uint8_t bytes[N_WORDS * 4];

    for (size_t i = 0; i < N_WORDS; i++)
        dcpk_store_u32le(bytes + 4 * i, words[i]);
    state[4] = dcpk_value_bytes(m->arena, bytes, sizeof bytes, m->err);
    return make_call(m, "numpy._core.multiarray", "_reconstruct",
                     make_seq(m, DCPK_V_TUPLE, args, 3), make_seq(m, DCPK_V_TUPLE, state, 5));
}

/* numpy.random.get_state(): ('MT19937', words, the next one's index, no Gaussian is left, 0.0) */
static const struct dcpk_value *numpy_state(struct making *m, uint32_t seed)
{
    const struct dcpk_value *state[5];
    uint32_t twister[N_WORDS];

    twister_seed(twister, seed);
    state[0] = make_str(m, "MT19937");
    state[1] = numpy_words(m, twister);
    state[2] = make_int(m, N_WORDS);
    state[3] = make_int(m, 0);
    state[4] = dcpk_value_float(m->arena, 0.0, m->err);
    return make_seq(m, DCPK_V_TUPLE, state, 5);
}

/*
 * torch.get_rng_state(), numbers little-endian; all else is 0, for no Gaussian is left.
 *
 *   seed u64 | left 1 i32 | seeded 1 i32 | next 0 u64 | 624 words, each a u64 | Gaussians
 */
static const struct dcpk_value *torch_state(struct making *m, uint32_t seed)
{
    uint8_t bytes[TORCH_BYTES] = {0};
    uint32_t twister[N_WORDS];

    twister_seed(twister, seed);
    dcpk_store_u32le(bytes, seed);
    dcpk_store_u32le(bytes + 8, 1);
    dcpk_store_u32le(bytes + 12, 1);
    for (size_t i = 0; i < N_WORDS; i++)
        dcpk_store_u32le(bytes + 24 + 8 * i, twister[i]);
    return dcpk_value_vector(m->arena, DCPK_U8, bytes, sizeof bytes, m->err);
}

/* torch.cuda.get_rng_state() */
static const struct dcpk_value *cuda_state(struct making *m, uint64_t seed)
{
    uint8_t bytes[CUDA_BYTES] = {0};

    dcpk_store_u64le(bytes, seed);
    return dcpk_value_vector(m->arena, DCPK_U8, bytes, sizeof bytes, m->err);
}

/* The states of one rank: a list of one dict. */
static const struct dcpk_value *rank_states(struct making *m, uint32_t seed, int64_t tp)
{
    static const char *const tracked[] = {"data-parallel-rng", "model-parallel-rng",
                                          "expert-parallel-rng"};
    static const char *const names[] = {"random_rng_state", "np_rng_state", "torch_rng_state",
                                        "cuda_rng_state", "rng_tracker_states"};
    const struct dcpk_value *trackers[] = {
        cuda_state(m, seed), cuda_state(m, (uint64_t)seed + MODEL_PARALLEL + (uint64_t)tp),
        cuda_state(m, (uint64_t)seed + EXPERT_PARALLEL)};
    const struct dcpk_value *states[] = {python_state(m, seed), numpy_state(m, seed),
                                         torch_state(m, seed), cuda_state(m, seed),
                                         make_dict(m, tracked, trackers, DCPK_COUNT(tracked))};
    const struct dcpk_value *dict = make_dict(m, names, states, DCPK_COUNT(names));

    return make_seq(m, DCPK_V_LIST, &dict, 1);
}

/* ---- all ranks ---- */

static bool is_seed(const struct dcpk_train_config *config)
{
    const uint64_t last = (uint64_t)(config->layout.pp - 1) * STAGE_SEEDS;

    return config->data.seed > 0 && last <= UINT32_MAX && config->data.seed <= UINT32_MAX - last;
}

dcpk_status dcpk_train_rng(const struct dcpk_train_config *config, struct dcpk_arena *arena,
                           struct dcpk_rng **list, size_t *n, struct dcpk_error *err)
{
    const int64_t n_tp = config->layout.tp, n_pp = config->layout.pp;
    struct making m = {arena, err};
    size_t n_made = 0;

    *n = 0;
    if (config->files.no_save_rng || !is_seed(config))
        return DCPK_OK;
    *list = dcpk_arena_array(arena, (size_t)(n_tp * n_pp), sizeof **list, err);
    if (*list == NULL)
        return err->status;
    for (int64_t pp = 0; pp < n_pp; pp++)
        for (int64_t tp = 0; tp < n_tp; tp++) {
            const uint32_t seed = (uint32_t)(config->data.seed + (uint64_t)pp * STAGE_SEEDS);
            struct dcpk_rng *rng = &(*list)[n_made++];

            *rng = (struct dcpk_rng){.pp = pp, .tp = tp, .states = rank_states(&m, seed, tp)};
            if (rng->states == NULL)
                return err->status;
        }
    *n = n_made;
    return DCPK_OK;
}
