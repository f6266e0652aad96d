/* SPDX-License-Identifier: Apache-2.0 */
/* test_remap_golden.c - samples into the memory of ranks, to another layout and back: proven; a
 * device that flips a bit, or is full, is found. */
#include <stdatomic.h>
#include <string.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/job/remap_checkpoint.h"
#include "tests/golden/samples.h"
#include "tests/late_device.h"

/* ---- a device with a fault ---- */

/* Counted from 1; 0: never. */
static struct {
    int flip_proof; /* before this run of a table that adds up fingerprints, of all ranks, */
    int flip_alloc; /* a bit flips in the first byte of this allocation of the rank */
    int fail_alloc; /* of all ranks */
    int idle_proof; /* nothing moves between this run of such a table and the next one */
} fault;
static atomic_int n_proofs, n_allocs;
static _Thread_local uint8_t *allocated[64];
static _Thread_local int n_own;
static struct dcpk_device_ops faulty;

static dcpk_status faulty_open(const struct dcpk_device_options *options,
                               struct dcpk_device **device, struct dcpk_error *err)
{
    const dcpk_status st = dcpk_devices[0]->open(options, device, err);

    n_own = 0;
    if (st == DCPK_OK)
        (*device)->ops = &faulty;
    return st;
}

static dcpk_status faulty_alloc(struct dcpk_device *device, enum dcpk_memory_kind kind,
                                size_t n_bytes, void **at, struct dcpk_error *err)
{
    dcpk_status st;

    if (atomic_fetch_add(&n_allocs, 1) + 1 == fault.fail_alloc)
        return dcpk_fail(err, DCPK_ENOMEM, "out of memory: %zu bytes asked, 5 are free", n_bytes);
    st = dcpk_devices[0]->alloc(device, kind, n_bytes, at, err);
    if (st == DCPK_OK && n_own < 63)
        allocated[++n_own] = *at;
    return st;
}

static dcpk_status faulty_run(struct dcpk_device *device, int queue, const struct dcpk_table *table,
                              uint64_t *sums, struct dcpk_error *err)
{
    if (sums == NULL && fault.idle_proof > 0 && atomic_load(&n_proofs) == fault.idle_proof)
        return DCPK_OK;
    if (sums != NULL && atomic_fetch_add(&n_proofs, 1) + 1 == fault.flip_proof)
        *allocated[fault.flip_alloc] ^= 1;
    return dcpk_devices[0]->run(device, queue, table, sums, err);
}

static void fault_begin(void)
{
    faulty = *dcpk_devices[0];
    faulty.open = faulty_open;
    faulty.alloc = faulty_alloc;
    faulty.run = faulty_run;
    memset(&fault, 0, sizeof fault);
    atomic_store(&n_proofs, 0);
    atomic_store(&n_allocs, 0);
}

/* ---- jobs ---- */

static struct dcpk_placing tensor_parallel(int64_t tp, int64_t pp, int64_t ep, int64_t dp)
{
    return (struct dcpk_placing){
        .grid = {.tp = tp, .pp = pp, .ep = ep, .dp = dp, .cp = 1, .etp = tp}};
}

static struct dcpk_placing fsdp(int64_t dp, int64_t tp, int64_t ep, int64_t n_instances)
{
    return (struct dcpk_placing){
        .grid = {.tp = tp, .ep = ep, .dp = dp * n_instances, .instances = n_instances},
        .is_fsdp = true,
        .bucket_elems = 40000000};
}

static struct dcpk_remap_job_options options_of(int n_ranks)
{
    return (struct dcpk_remap_job_options){
        .env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 2},
        .n_ranks = n_ranks,
        .device = dcpk_devices[0],
        .n_runs = 1,
        .link_bytes_a_second = 1e9,
    };
}

static const struct sample *sample_named(const char *folder)
{
    size_t i = 0;

    while (strncmp(samples[i].folder, folder, strlen(folder)) != 0)
        i++;
    return &samples[i];
}

/* Returns the status; name: of the tensor that differs first, copied, else "". */
static dcpk_status job_try(const char *folder, const struct dcpk_remap_job_options *options,
                           struct dcpk_remap_result *result, char name[128], struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = sample_open(sample_named(folder));
    struct dcpk_remap_job *job = NULL;
    dcpk_status st = dcpk_remap_job_new(ckpt, options, &job, err);

    name[0] = '\0';
    if (st == DCPK_OK)
        st = dcpk_remap_job_run(job, result, err);
    for (unsigned i = 0; i < DCPK_N_STEPS && st == DCPK_OK; i++)
        if (result->steps[i].first.name != NULL)
            snprintf(name, 128, "%s", result->steps[i].first.name);
    dcpk_remap_job_free(job);
    dcpk_checkpoint_close(ckpt);
    return st;
}

/* Every layout that fits, direct and over a link. */
static void test_layouts(void **state)
{
    static const char dense[] = "torch_dist_c_dense_tp2pp2", moe[] = "torch_dist_c_mla_moe";
    const struct {
        const char *label, *folder;
        struct dcpk_placing from, to;
    } cases[] = {
        {"rows to buffers", dense, tensor_parallel(4, 1, 1, 1), fsdp(4, 1, 1, 1)},
        {"stages to blocks", dense, tensor_parallel(1, 4, 1, 1), tensor_parallel(2, 2, 1, 1)},
        {"replicas", dense, tensor_parallel(2, 1, 1, 2), fsdp(2, 1, 1, 2)},
        {"fewer ranks", dense, tensor_parallel(2, 2, 1, 1), tensor_parallel(1, 1, 1, 3)},
        {"blocks of buffers", dense, fsdp(2, 2, 1, 1), tensor_parallel(2, 1, 1, 2)},
        {"experts", moe, tensor_parallel(2, 1, 2, 2), fsdp(4, 1, 4, 1)},
        {"experts in instances", moe, fsdp(2, 1, 1, 2), tensor_parallel(1, 1, 4, 4)},
        {"projections of Mamba", "torch_dist_c_mamba", tensor_parallel(2, 1, 1, 2),
         fsdp(4, 1, 1, 1)},
        {"of Gated DeltaNet", "torch_dist_c_gdn", tensor_parallel(2, 1, 1, 1),
         tensor_parallel(1, 1, 1, 1)},
        {"buffers of another format", "fsdp_dtensor_native_dp2", fsdp(3, 1, 1, 1),
         tensor_parallel(2, 1, 1, 2)},
    };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        struct dcpk_remap_job_options options = options_of(4);
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_remap_result result;
        const size_t c = i / 2;
        char name[128];

        options.from = cases[c].from;
        options.to = cases[c].to;
        options.checks = c % 2 == 0;
        if (i % 2 == 1) {
            options.path = DCPK_REMAP_STAGED;
            options.link = dcpk_links[0];
            options.staging_bytes = 1 << 16;
            options.unit_bytes = 100000;
        }
        CHECK_OK(job_try(cases[c].folder, &options, &result, name, &err), cases[c].label);
        CHECK(result.ok, cases[c].label);
        CHECK_EQ_STR(name, "", cases[c].label);
        CHECK(result.steps[DCPK_STEP_BACK].is_made, cases[c].label);
        CHECK(result.steps[DCPK_STEP_LOAD].moved_bytes >= result.tensor_bytes, cases[c].label);
        CHECK(result.steps[DCPK_STEP_THERE].moved_bytes > 0, cases[c].label);
        CHECK(i % 2 == 0 || result.steps[DCPK_STEP_THERE].n_messages > 0, cases[c].label);
    }
}

/* A rank alone, with one proof a step: allocation 3 is the memory of the first layout, 6 that of
 * the second. */
static void test_flipped(void **state)
{
    static const struct {
        const char *label;
        int flip_alloc;
        enum dcpk_remap_step_number step;
    } cases[] = {
        {"in what was loaded", 3, DCPK_STEP_LOAD},
        {"in what the remap stored", 6, DCPK_STEP_THERE},
        {"in what came back", 3, DCPK_STEP_BACK},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_remap_job_options options = options_of(1);
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_remap_result result;
        const struct dcpk_remap_step *step = &result.steps[cases[i].step];
        char name[128];

        fault_begin();
        fault.flip_proof = (int)cases[i].step + 1;
        fault.flip_alloc = cases[i].flip_alloc;
        options.device = &faulty;
        options.from = tensor_parallel(1, 1, 1, 1);
        options.to = fsdp(1, 1, 1, 1);
        CHECK_OK(job_try("torch_dist_c_dense_tp2pp2", &options, &result, name, &err),
                 cases[i].label);
        CHECK(!result.ok, cases[i].label);
        CHECK_EQ_INT(step->n_different, 1, cases[i].label);
        CHECK(step->first.wanted != step->first.found, cases[i].label);
        CHECK(name[0] != '\0', cases[i].label);
        for (unsigned s = 0; s < DCPK_N_STEPS; s++) /* the last step that is made */
            CHECK_EQ_INT(result.steps[s].is_made, s <= cases[i].step, cases[i].label);
    }
}

/* A device that does what is queued late, and whose link is measured. */
static void test_late(void **state)
{
    struct dcpk_remap_job_options options = options_of(2);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap_result result;
    char name[128];

    (void)state;
    late_begin();
    options.device = &late_ops;
    options.n_runs = 2;
    options.link_bytes_a_second = 0;
    options.from = tensor_parallel(2, 1, 1, 1);
    options.to = fsdp(2, 1, 1, 1);
    CHECK_OK(job_try("torch_dist_c_dense_tp2pp2", &options, &result, name, &err), "late");
    CHECK(result.ok, "late");
    CHECK(result.is_link_measured && result.link_bytes_a_second > 0, "late");
}

/* The second of three runs stores nothing: what the first one has stored does not pass for it. */
static void test_idle_run(void **state)
{
    struct dcpk_remap_job_options options = options_of(1);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap_result result;
    char name[128];

    (void)state;
    fault_begin();
    fault.idle_proof = 2; /* that of the first run */
    options.device = &faulty;
    options.n_runs = 3;
    options.from = tensor_parallel(1, 1, 1, 1);
    options.to = fsdp(1, 1, 1, 1);
    CHECK_OK(job_try("torch_dist_c_dense_tp2pp2", &options, &result, name, &err), "idle");
    CHECK(!result.ok, "idle");
    CHECK_EQ_INT(result.steps[DCPK_STEP_THERE].n_different, result.n_tensors, "idle");
    CHECK(!result.steps[DCPK_STEP_BACK].is_made, "idle");
    CHECK_EQ_INT(atomic_load(&n_proofs), 3, "the run that fails is the last one");
}

/* One of two replicas alone is wrong. */
static void test_one_copy(void **state)
{
    struct dcpk_remap_job_options options = options_of(2);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap_result result;
    char name[128];

    (void)state;
    fault_begin();
    fault.flip_proof = 1;
    fault.flip_alloc = 3;
    options.device = &faulty;
    options.from = tensor_parallel(1, 1, 1, 2);
    options.to = fsdp(2, 1, 1, 1);
    CHECK_OK(job_try("torch_dist_c_dense_tp2pp2", &options, &result, name, &err), "replicas");
    CHECK(!result.ok, "replicas");
    CHECK_EQ_INT(result.steps[DCPK_STEP_LOAD].n_different, 1, "replicas");
}

/* What a process may use is for all its ranks, half of it for the ring. */
static void test_little_memory(void **state)
{
    struct dcpk_remap_job_options options = options_of(4);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap_result result;
    char name[128];

    (void)state;
    options.env.memory_bytes = UINT64_C(2) << 20;
    options.from = tensor_parallel(4, 1, 1, 1);
    options.to = fsdp(4, 1, 1, 1);
    CHECK_OK(job_try("torch_dist_c_dense_tp2pp2", &options, &result, name, &err), "2 MiB");
    CHECK(result.ok, "2 MiB");
    CHECK(result.steps[DCPK_STEP_LOAD].staging_bytes <= 256 * 1024, "2 MiB for four ranks");
}

/* Every rank of a machine takes a device of its own: here there is one. */
static void test_one_device(void **state)
{
    struct dcpk_remap_job_options options = options_of(2);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap_result result;
    char name[128];

    (void)state;
    fault_begin();
    faulty.is_host = false;
    options.device = &faulty;
    options.from = tensor_parallel(2, 1, 1, 1);
    options.to = fsdp(2, 1, 1, 1);
    CHECK_FAILS(job_try("torch_dist_c_dense_tp2pp2", &options, &result, name, &err),
                DCPK_EUNSUPPORTED, "every process must see all devices", "one device");
}

static void test_no_memory(void **state)
{
    (void)state;
    for (int n = 1; n <= 12; n += 3) {
        struct dcpk_remap_job_options options = options_of(2);
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_remap_result result;
        char name[128];

        fault_begin();
        fault.fail_alloc = n;
        options.device = &faulty;
        options.from = tensor_parallel(2, 1, 1, 1);
        options.to = fsdp(2, 1, 1, 1);
        CHECK_FAILS(job_try("torch_dist_c_dense_tp2pp2", &options, &result, name, &err),
                    DCPK_ENOMEM, "bytes asked, 5 are free", "a full device");
    }
}

/* An allocation fails, on any of two ranks or before they begin: an error, and all come to an end.
 */
static void test_allocations(void **state)
{
    dcpk_status st = DCPK_ENOMEM;

    (void)state;
    for (uint64_t nth = 1; st != DCPK_OK; nth += 1 + nth / 16) {
        struct dcpk_remap_job_options options = options_of(2);
        struct dcpk_checkpoint *ckpt = sample_open(sample_named("torch_dist_c_tied"));
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_remap_job *job = NULL;
        struct dcpk_remap_result result;
        char label[64];

        options.from = tensor_parallel(2, 1, 1, 1);
        options.to = fsdp(2, 1, 1, 1);
        options.checks = true;
        snprintf(label, sizeof label, "allocation %d fails", (int)nth);
        dcpk_alloc_fail_nth(nth);
        st = dcpk_remap_job_new(ckpt, &options, &job, &err);
        if (st == DCPK_OK)
            st = dcpk_remap_job_run(job, &result, &err);
        dcpk_alloc_fail_nth(0);
        CHECK(st != DCPK_OK || result.ok, label);
        CHECK_EQ_INT(st, err.status, label);
        CHECK((st == DCPK_OK) == (err.text[0] == '\0'), label);
        dcpk_remap_job_free(job);
        dcpk_checkpoint_close(ckpt);
    }
}

static void test_refused(void **state)
{
    const struct {
        const char *label, *folder;
        struct dcpk_placing from;
        dcpk_status status;
        const char *message;
    } cases[] = {
        {"ranks", "torch_dist_c_dense", tensor_parallel(8, 1, 1, 1), DCPK_EUSAGE,
         "has 8 ranks, there are 4"},
        {"heads", "torch_dist_c_dense", tensor_parallel(3, 1, 1, 1), DCPK_EMISMATCH, "tp=3"},
        {"layers", "torch_dist_c_dense", tensor_parallel(1, 3, 1, 1), DCPK_EMISMATCH, "pp=3"},
        {"experts", "torch_dist_c_dense", tensor_parallel(1, 1, 2, 2), DCPK_EMISMATCH, "ep=2"},
        {"an unknown module", "tiny_generations/torch_dist_main", tensor_parallel(2, 1, 1, 1),
         DCPK_EUNSUPPORTED, "no rule says"},
        {"no model", "torch_dist_b_dense_tp2pp2_p2g", tensor_parallel(1, 1, 1, 1),
         DCPK_EUNSUPPORTED, "not a checkpoint of a Megatron model"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_remap_job_options options = options_of(4);
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_remap_result result;
        char name[128];

        options.from = cases[i].from;
        options.to = tensor_parallel(1, 1, 1, 1);
        CHECK_FAILS(job_try(cases[i].folder, &options, &result, name, &err), cases[i].status,
                    cases[i].message, cases[i].label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),       cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_late),          cmocka_unit_test(test_idle_run),
        cmocka_unit_test(test_one_copy),      cmocka_unit_test(test_one_device),
        cmocka_unit_test(test_little_memory), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_allocations),   cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
