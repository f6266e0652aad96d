/* SPDX-License-Identifier: Apache-2.0 */
/* test_exec.c - slabs, and what the executor reports when the source is bad or it is to stop. */
#include "lib/base/digest.h"
#include "lib/exec/exec.h"
#include "lib/exec/slab.h"
#include "tests/fake_ckpt.h"

static struct fake fake;

static const struct {
    const char *label;
    struct dcpk_box box;
    size_t elem_bytes;
    uint64_t limit_bytes;
    uint64_t n;  /* slabs */
    uint64_t at; /* one of them: */
    struct dcpk_box slab;
    uint64_t first;
} slab_cases[] = {
    {"fits", {2, {1, 2}, {3, 4}}, 4, 48, 1, 0, {2, {1, 2}, {3, 4}}, 0},
    {"scalar", {.rank = 0}, 16, 1, 1, 0, {.rank = 0}, 0},
    {"empty", {2, {0, 0}, {0, 9}}, 4, 4, 1, 0, {2, {0, 0}, {0, 9}}, 0},
    {"rows", {2, {1, 2}, {5, 4}}, 4, 40, 3, 1, {2, {3, 2}, {2, 4}}, 8},
    {"the last rows", {2, {1, 2}, {5, 4}}, 4, 40, 3, 2, {2, {5, 2}, {1, 4}}, 16},
    {"within rows", {2, {1, 2}, {5, 4}}, 4, 12, 10, 3, {2, {2, 5}, {1, 1}}, 7},
    {"one element at least", {2, {0, 0}, {5, 4}}, 8, 3, 20, 19, {2, {4, 3}, {1, 1}}, 19},
    {"middle axis", {3, {0, 0, 0}, {2, 5, 3}}, 1, 7, 6, 4, {3, {1, 2, 0}, {1, 2, 3}}, 21},
};

static void test_slabs(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof slab_cases / sizeof *slab_cases; c++) {
        struct dcpk_slabs slabs;
        struct dcpk_box slab;
        uint64_t next = 0;

        dcpk_slabs_cut(&slab_cases[c].box, slab_cases[c].elem_bytes, slab_cases[c].limit_bytes,
                       &slabs);
        CHECK_EQ_INT(slabs.n, slab_cases[c].n, slab_cases[c].label);
        for (uint64_t i = 0; i < slabs.n; i++) { /* each begins where the one before it ends */
            CHECK_EQ_INT(dcpk_slabs_first(&slabs, i), next, slab_cases[c].label);
            dcpk_slabs_box(&slabs, i, &slab);
            next += dcpk_box_elems(&slab);
        }
        CHECK_EQ_INT(next, dcpk_box_elems(&slab_cases[c].box), slab_cases[c].label);
        CHECK_EQ_INT(dcpk_slabs_first(&slabs, slab_cases[c].at), slab_cases[c].first,
                     slab_cases[c].label);
        dcpk_slabs_box(&slabs, slab_cases[c].at, &slab);
        for (int axis = 0; axis < slab.rank; axis++) {
            CHECK_EQ_INT(slab.offset[axis], slab_cases[c].slab.offset[axis], slab_cases[c].label);
            CHECK_EQ_INT(slab.extent[axis], slab_cases[c].slab.extent[axis], slab_cases[c].label);
        }
    }
}

/* What is wrong with the source. */
enum fault { GOOD, BAD_BYTE, BAD_OBJECT, NO_CRC, PAST_END, BACKWARDS, UNCOVERED };
static const struct {
    const char *label;
    enum fault fault;
    dcpk_status check, hash;
    char check_text[32], hash_text[64];
} fault_cases[] = {
    {"good", .fault = GOOD},
    {"a byte of the data is wrong", .fault = BAD_BYTE, .check = DCPK_EFORMAT,
     .check_text = "checking 'tensor1'"},
    {"the message has both checksums", .fault = BAD_BYTE, .check = DCPK_EFORMAT,
     .check_text = "was stored with them"},
    {"the message has the file", .fault = BAD_BYTE, .check = DCPK_EFORMAT,
     .check_text = "' have CRC-32"},
    {"an object is wrong", .fault = BAD_OBJECT, .check = DCPK_EFORMAT,
     .check_text = "checking 'object'"},
    {"without a checksum nothing is checked", .fault = NO_CRC},
    {"past the end", .fault = PAST_END, .hash = DCPK_EFORMAT,
     .hash_text = "reading 'tensor1' from '"},
    {"backwards", .fault = BACKWARDS, .hash = DCPK_EUNSUPPORTED,
     .hash_text = "'tensor1' is stored backwards along axis 1"},
    {"not covered", .fault = UNCOVERED, .hash = DCPK_EFORMAT,
     .hash_text = "the chunks of 'tensor1' do not cover [0:50, 0:40] exactly"},
};

static void break_source(enum fault fault)
{
    struct fake_chunk *chunk = &fake.chunks[fake.tensors[1].first_chunk];
    uint8_t *data = fake.files[chunk->place.file].data;

    switch (fault) {
    case GOOD:
        break;
    case BAD_BYTE:
        data[chunk->place.offset_bytes + chunk->place.n_bytes - 1] ^= 1;
        break;
    case BAD_OBJECT:
        fake.files[0].data[fake.objects[0].place.offset_bytes] = 'x';
        break;
    case NO_CRC:
        data[chunk->place.offset_bytes] ^= 1;
        chunk->extent.has_crc32 = false;
        break;
    case PAST_END:
        chunk->extent.first_bytes = fake.files[chunk->place.file].n_bytes - 1;
        break;
    case BACKWARDS:
        chunk->extent.is_row_major = false;
        chunk->extent.stride_bytes[1] = -4;
        break;
    case UNCOVERED:
        chunk->span[2] = 49;
        break;
    }
}

static void test_faults(void **state)
{
    static const int64_t shape[] = {50, 40};

    (void)state;
    for (size_t c = 0; c < sizeof fault_cases / sizeof *fault_cases; c++) {
        const char *label = fault_cases[c].label;
        const struct dcpk_env env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 2};
        struct dcpk_error err = DCPK_ERROR_INIT, hash_err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_checkpoint *ckpt;
        struct dcpk_view views[2];
        struct dcpk_hash hashes[2];
        struct dcpk_exec *exec;
        uint64_t seed = 5;

        fake_add(&fake, DCPK_F32, 2, shape, 5, &seed);
        fake_add(&fake, DCPK_F32, 2, shape, 0, &seed);
        fake_add_object(&fake, "object", 20);
        break_source(fault_cases[c].fault);
        ckpt = fake_open(&fake, label);
        for (uint32_t t = 0; t < 2; t++)
            CHECK_OK(dcpk_view_stored(ckpt, t, arena, &views[t], &err), label);
        CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), label);
        CHECK_FAILS(dcpk_exec_check_items(exec, NULL, &err), fault_cases[c].check,
                    fault_cases[c].check_text, label);
        err = hash_err;
        CHECK_FAILS(dcpk_exec_hash(exec, views, 2, hashes, NULL, &err), fault_cases[c].hash,
                    fault_cases[c].hash_text, label);
        dcpk_exec_free(exec);
        dcpk_checkpoint_close(ckpt);
        dcpk_arena_free(arena);
        fake_release(&fake);
    }
}

#define LARGE_BYTES ((size_t)5 << 20) /* a worker's buffer has 4 MiB */

/* An object that no buffer holds is read in parts, every record against its checksum. */
static void test_large_object(void **state)
{
    static const struct {
        const char *label;
        size_t wrong; /* byte of the object; 0: none */
        const char *text;
    } cases[] = {
        {"good", 0, ""},
        {"the first buffer of it is damaged", 2, "checking 'large'"},
        {"its end is damaged", LARGE_BYTES - 1, "was stored with them"},
    };
    const struct dcpk_env env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 1};

    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_exec_stats stats = {0};
        struct dcpk_checkpoint *ckpt;
        struct dcpk_exec *exec;

        fake_add_object(&fake, "large", LARGE_BYTES);
        if (cases[c].wrong > 0)
            fake.files[0].data[fake.objects[0].place.offset_bytes + cases[c].wrong] ^= 1;
        ckpt = fake_open(&fake, cases[c].label);
        CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), cases[c].label);
        if (cases[c].wrong == 0) {
            CHECK_OK(dcpk_exec_check_items(exec, &stats, &err), cases[c].label);
            CHECK(stats.read_bytes >= LARGE_BYTES, cases[c].label);
        } else {
            CHECK_FAILS(dcpk_exec_check_items(exec, &stats, &err), DCPK_EFORMAT, cases[c].text,
                        cases[c].label);
        }
        dcpk_exec_free(exec);
        dcpk_checkpoint_close(ckpt);
        fake_release(&fake);
    }
}

/* Two tensors whose chunks are the same bytes: read once. */
static void test_aliases_once(void **state)
{
    static const int64_t shape[] = {64, 64};
    const struct dcpk_env env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 2};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_exec_stats stats;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_hash hashes[3];
    struct dcpk_view views[3];
    struct dcpk_exec *exec;
    uint64_t seed = 5;

    (void)state;
    for (int t = 0; t < 3; t++)
        fake_add(&fake, DCPK_F32, 2, shape, 0, &seed);
    fake.chunks[1].place = fake.chunks[0].place;
    fake.chunks[1].extent = fake.chunks[0].extent;
    ckpt = fake_open(&fake, "aliases");
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), "aliases");
    CHECK_OK(dcpk_exec_check_items(exec, &stats, &err), "aliases");
    CHECK_EQ_INT(stats.read_bytes, 2 * 64 * 64 * 4, "checked once, by the name of the first");
    CHECK_EQ_INT(fake.n_located, 2, "aliases");
    for (uint32_t t = 0; t < 3; t++)
        CHECK_OK(dcpk_view_stored(ckpt, t, arena, &views[t], &err), "aliases");
    CHECK_OK(dcpk_exec_hash(exec, views, 3, hashes, &stats, &err), "aliases");
    CHECK_EQ_INT(stats.read_bytes, 2 * 64 * 64 * 4, "hashed once");
    CHECK(memcmp(&hashes[0], &hashes[1], sizeof hashes[0]) == 0, "one hash for both");
    CHECK(memcmp(&hashes[0], &hashes[2], sizeof hashes[0]) != 0, "another tensor");
    dcpk_exec_free(exec);
    dcpk_checkpoint_close(ckpt);
    dcpk_arena_free(arena);
    fake_release(&fake);
}

/* A chunk is located once, though many slabs of a tensor take from it. */
static void test_located_once(void **state)
{
    static const int64_t shape[] = {3000, 1000};
    const struct dcpk_env env = {
        .kernels = dcpk_host_kernel_sets[0], .n_threads = 1, .memory_bytes = 16 << 20};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_checkpoint *ckpt;
    struct dcpk_hash hash;
    struct dcpk_view view;
    struct dcpk_exec *exec;
    uint64_t seed = 5;

    (void)state;
    do { /* until the chunk lies row-major: others are asked for each time */
        fake_release(&fake);
        fake_add(&fake, DCPK_F32, 2, shape, 0, &seed);
    } while (!fake.chunks[0].extent.is_row_major);
    ckpt = fake_open(&fake, "located");
    CHECK_OK(dcpk_view_stored(ckpt, 0, arena, &view, &err), "located");
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), "located");
    CHECK_OK(dcpk_exec_hash(exec, &view, 1, &hash, NULL, &err), "located");
    CHECK_EQ_INT(fake.n_located, 1, "located");
    dcpk_exec_free(exec);
    dcpk_checkpoint_close(ckpt);
    dcpk_arena_free(arena);
    fake_release(&fake);
}

struct told {
    uint64_t n_calls, done_bytes, total_bytes;
    uint64_t stop_at_call; /* 0: never */
};

static bool tell(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct told *told = context;

    told->n_calls++;
    told->done_bytes = done_bytes;
    told->total_bytes = total_bytes;
    return told->n_calls != told->stop_at_call;
}

static void test_progress(void **state)
{
    static const int64_t shape[] = {64, 64};
    struct told told = {0};
    const struct dcpk_env env = {.kernels = dcpk_host_kernel_sets[0],
                                 .n_threads = 2,
                                 .progress = {.update = tell, .context = &told}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_checkpoint *ckpt;
    struct dcpk_view views[200];
    struct dcpk_hash hashes[200];
    struct dcpk_exec *exec;
    uint64_t seed = 5;

    (void)state;
    for (size_t i = 0; i < 200; i++)
        fake_add(&fake, DCPK_F32, 2, shape, 3, &seed);
    ckpt = fake_open(&fake, "progress");
    for (uint32_t i = 0; i < 200; i++)
        CHECK_OK(dcpk_view_stored(ckpt, i, arena, &views[i], &err), "progress");
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), "progress");
    CHECK_OK(dcpk_exec_hash(exec, views, 200, hashes, NULL, &err), "progress");
    CHECK_EQ_INT(told.done_bytes, 200 * 64 * 64 * 4, "progress");
    CHECK_EQ_INT(told.total_bytes, 200 * 64 * 64 * 4, "progress");
    CHECK(told.n_calls >= 1 && told.n_calls < 100, "progress");
    told = (struct told){.stop_at_call = 1};
    CHECK_FAILS(dcpk_exec_hash(exec, views, 200, hashes, NULL, &err), DCPK_ECANCELLED,
                "stopped on request", "progress");
    CHECK_EQ_INT(told.n_calls, 1, "progress");
    dcpk_exec_free(exec);
    dcpk_checkpoint_close(ckpt);
    dcpk_arena_free(arena);
    fake_release(&fake);
}

/* The right side is cast to the left's dtype before they are compared: bf16(master) against the
 * weight. */
static void test_compare_casts(void **state)
{
    static const float master[] = {1.0f, 1.00390625f, -3.5f, 1e30f};
    static const uint16_t weight[] = {0x3f80, 0x3f80, 0xc060, 0x714a}; /* torch: .bfloat16() */
    static const int64_t shape[] = {4};
    struct dcpk_view left = {.dtype = DCPK_BF16, .rank = 1, .shape = shape, .literal = weight};
    struct dcpk_view right = {.dtype = DCPK_F32, .rank = 1, .shape = shape, .literal = master};
    const struct dcpk_env env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 1};
    struct dcpk_checkpoint *ckpt = fake_open(&fake, "casts");
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_compare result;
    struct dcpk_exec *exec;

    (void)state;
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), "casts");
    CHECK_OK(dcpk_exec_compare(&(struct dcpk_view_pairs){exec, exec, &left, &right, 1, NULL, 0},
                               &result, NULL, &err),
             "casts");
    CHECK(result.equal, "casts");
    CHECK_OK(dcpk_exec_compare(&(struct dcpk_view_pairs){exec, exec, &right, &left, 1, NULL, 0},
                               &result, NULL, &err),
             "casts");
    CHECK(!result.equal, "casts");
    CHECK_EQ_INT(result.n_different, 2, "casts"); /* what bf16 cannot hold: 1.00390625 and 1e30 */
    CHECK_EQ_INT(result.first_different, 1, "casts");
    left.dtype = DCPK_I16;
    CHECK_FAILS(dcpk_exec_compare(&(struct dcpk_view_pairs){exec, exec, &left, &right, 1, NULL, 0},
                                  &result, NULL, &err),
                DCPK_EUNSUPPORTED, "", "casts");
    dcpk_exec_free(exec);
    dcpk_checkpoint_close(ckpt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slabs),         cmocka_unit_test(test_faults),
        cmocka_unit_test(test_large_object),  cmocka_unit_test(test_aliases_once),
        cmocka_unit_test(test_located_once),  cmocka_unit_test(test_progress),
        cmocka_unit_test(test_compare_casts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
