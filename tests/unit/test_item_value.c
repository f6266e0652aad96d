/* SPDX-License-Identifier: Apache-2.0 */
/* test_item_value.c - values of items, with tensors in them; what is refused, and why. */
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/item_bytes.h"

/* A file that torch.load is given: nothing, what it would call, or why it cannot be read. */
static void finds_the_fault_of_a_file(void **state)
{
    static const struct {
        const char *label, *pickle, *fault;
    } cases[] = {
        {"a dict", "}U\4stepK\1s.", NULL},
        {"a call", "}U\4stepcos\nsystem\n)Rs.", "holds 'os.system'"},
        {"a call taken off again", "cos\nsystem\n)R0N.", "takes a object off the stack"},
        {"a pickle that is cut", "}U\4step", "without STOP"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct item item = {.arena = NULL};
        const char *fault = "unset";

        dcpk_bytes_text(&item.pickle, cases[i].pickle);
        item_pack(&item, 0, NULL);
        CHECK_OK(dcpk_item_find_fault(item.range.source, item.arena, &fault, &err), cases[i].label);
        if (cases[i].fault == NULL)
            CHECK(fault == NULL, cases[i].label);
        else
            CHECK(fault != NULL && strstr(fault, cases[i].fault) != NULL, cases[i].label);
        item_close(&item);
    }
}

/* torch.load gives an archive with constants.pkl to TorchScript, which runs its code. */
static void refuses_torchscript(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct item item = {.arena = NULL};
    const struct dcpk_value *value;

    (void)state;
    dcpk_bytes_put(&item.pickle, "\x80\x02N.", 4);
    put_archive(&item.archive, &item.pickle, 0, "a/constants.pkl", "\x80\x02).");
    item_open(&item);
    CHECK_FAILS(item_value(&item, &value, &err), DCPK_EUNSUPPORTED, "TorchScript", "value");
    item_close(&item);
}

/* torch finds each class that a persistent id names, which imports its module. */
static void refuses_odd_persistent_ids(void **state)
{
    static const struct {
        const char *label, *rest, *text;
    } cases[] = {
        {"as torch writes it", "U\3cpuK\6tQ.", "does not belong to a dense tensor"},
        {"a name for a location", "cantigravity\ngeohash\nK\6tQ.", "a persistent id that is not"},
        {"a name behind it", "U\3cpuK\6cantigravity\ngeohash\ntQ.", "a persistent id that is not"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct item item = {.arena = NULL};
        const struct dcpk_value *value;

        dcpk_bytes_put(&item.pickle, "\x80\x02", 2);
        dcpk_bytes_text(&item.pickle, "(U\x07storagectorch\nFloatStorage\nU\x01"
                                      "0");
        dcpk_bytes_text(&item.pickle, cases[i].rest);
        item_pack(&item, 24, NULL);
        CHECK_FAILS(item_value(&item, &value, &err), DCPK_EUNSUPPORTED, cases[i].text,
                    cases[i].label);
        item_close(&item);
    }
}

/* [transposed view, the same again by memo, a Parameter of a view]: bytes row-major. */
static void fills_tensors_of_values(void **state)
{
    static const struct tensor_case view = {
        "view",          .call = V2,        .module = "torch", .storage = "ByteStorage",
        .key = "0",      .numel = 24,       .offset = 2,       .rank = 2,
        .shape = {2, 3}, .strides = {1, 6}, .data_bytes = 24};
    static const uint8_t wanted[] = {2, 8, 14, 3, 9, 15};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct item item = {.arena = NULL};
    const struct dcpk_value *v = NULL, *last;

    (void)state;
    dcpk_bytes_put(&item.pickle, "\x80\x02](", 4);
    put_tensor(&item.pickle, &view);
    dcpk_bytes_text(&item.pickle, "q\1h\1"
                                  "ctorch._utils\n_rebuild_parameter\n(");
    put_tensor(&item.pickle, &view);
    dcpk_bytes_text(&item.pickle, "\x88"
                                  "ccollections\nOrderedDict\n)RtRe.");
    item_pack(&item, 24, "little");
    CHECK_OK(item_value(&item, &v, &err), "value");
    CHECK_EQ_INT(v->n, 3, "value");
    CHECK(dcpk_value_at(v, 0)->as.tensor == dcpk_value_at(v, 1)->as.tensor, "shared");
    last = dcpk_value_at(v, 2);
    CHECK_EQ_INT(last->kind, DCPK_V_TENSOR, "parameter");
    CHECK_EQ_INT(last->as.tensor->n_bytes, sizeof wanted, "parameter");
    CHECK(memcmp(last->as.tensor->data, wanted, sizeof wanted) == 0, "parameter");
    dcpk_store_close(item.store);
    dcpk_arena_free(item.arena);
    item.archive.data[item.archive.n_bytes / 4] ^= 1; /* of a record whose CRC alone shows it */
    item_open(&item);
    CHECK(item_value(&item, &v, &err) != DCPK_OK, "CRC");
    item_close(&item);
}

struct seen_records {
    struct dcpk_source *source;
    uint64_t n, end_bytes;
};

/* Records come in the order of their bytes, and their checksums are right. */
static dcpk_status see_record(void *context, const struct dcpk_record *record,
                              struct dcpk_error *unused)
{
    struct seen_records *seen = context;
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint8_t data[1024];

    (void)unused;
    CHECK(record->offset_bytes >= seen->end_bytes && record->n_bytes <= sizeof data, "record");
    CHECK_OK(
        dcpk_source_read(seen->source, record->offset_bytes, data, (size_t)record->n_bytes, &err),
        "record");
    CHECK_EQ_INT(libdeflate_crc32(0, data, (size_t)record->n_bytes), record->crc32, "CRC-32");
    seen->end_bytes = record->offset_bytes + record->n_bytes;
    seen->n++;
    return DCPK_OK;
}

/* An outline locates the elements of tensors, however many a tensor claims to have. */
static void outlines_point_at_tensors(void **state)
{
    static const struct tensor_case whole = {
        "whole",      .call = V2,     .module = "torch", .storage = "FloatStorage",
        .key = "0",   .numel = 5,     .offset = 1,       .rank = 1,
        .shape = {4}, .strides = {1}, .data_bytes = 20};
    static const struct tensor_case every_second = {
        "every_second", .call = V2,     .module = "torch", .storage = "FloatStorage",
        .key = "0",     .numel = 5,     .offset = 1,       .rank = 1,
        .shape = {2},   .strides = {2}, .data_bytes = 20};
    static const struct tensor_case repeated = {
        "repeated",      .call = V2,  .module = "torch", .storage = "FloatStorage", .key = "0",
        .numel = 5,      .offset = 0, .rank = 1,         .shape = {INT64_MAX / 4},  .strides = {0},
        .data_bytes = 20};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct item item = {.arena = NULL};
    const struct dcpk_value *v = NULL, *loaded = NULL;
    const struct dcpk_value_tensor *t;
    struct seen_records seen = {.end_bytes = 0};
    uint8_t bytes[16];

    (void)state;
    dcpk_bytes_put(&item.pickle, "\x80\x02](", 4);
    put_tensor(&item.pickle, &whole);
    put_tensor(&item.pickle, &every_second);
    dcpk_bytes_text(&item.pickle, "e.");
    item_pack(&item, 20, "little");
    CHECK_OK(dcpk_item_read_outline(&item.range, item.arena, &v, &err), "outline");
    t = dcpk_value_at(v, 0)->as.tensor;
    CHECK(t->data == NULL && t->is_row_major && t->n_bytes == 16 && t->dtype == DCPK_F32, "whole");
    CHECK_OK(dcpk_source_read(item.range.source, t->first_bytes, bytes, sizeof bytes, &err),
             "whole");
    CHECK_OK(dcpk_item_read_value(&item.range, item.arena, &loaded, &err), "load");
    CHECK(memcmp(dcpk_value_at(loaded, 0)->as.tensor->data, bytes, sizeof bytes) == 0, "bytes");
    CHECK(!dcpk_value_at(v, 1)->as.tensor->is_row_major, "every second element");
    seen.source = item.range.source;
    CHECK_OK(dcpk_item_each_record(&item.range, see_record, &seen, &err), "records");
    CHECK(seen.n >= 4, "data.pkl, byteorder, data/0, version");
    item_close(&item);

    dcpk_bytes_put(&item.pickle, "\x80\x02", 2);
    put_tensor(&item.pickle, &repeated);
    dcpk_bytes_u8(&item.pickle, '.');
    item_pack(&item, 20, NULL);
    CHECK_OK(dcpk_item_read_outline(&item.range, item.arena, &v, &err), "nothing is read");
    CHECK(!v->as.tensor->is_row_major, "one element many times");
    item.range.n_bytes--;
    CHECK_FAILS(dcpk_item_read_outline(&item.range, item.arena, &v, &err), DCPK_EFORMAT,
                "not an end record", "cut");
    item_close(&item);
}

/* A GiB is what is taken into memory; the file is a hole, and no byte of it is asked for. */
static void refuses_large_values(void **state)
{
    const uint64_t n_bytes = DCPK_MAX_LOADED_BYTES + 1;
    const int fd = memfd_create("item", MFD_CLOEXEC);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct item item = {.arena = dcpk_arena_new()};
    const struct dcpk_value *v = NULL;

    (void)state;
    CHECK(fd >= 0 && ftruncate(fd, (off_t)n_bytes) == 0, "a hole");
    CHECK_OK(dcpk_store_new_ranges("memory", fd, &item.store, &err), "store");
    CHECK_OK(dcpk_store_add_range(item.store, "item", 0, n_bytes, &err), "store");
    CHECK_OK(dcpk_store_find(item.store, "item", &item.range.source, &err), "store");
    CHECK_FAILS(item_value(&item, &v, &err), DCPK_ERANGE,
                "1073741825 bytes; the limit is 1073741824", "limit");
    dcpk_store_close(item.store);
    dcpk_arena_free(item.arena);
}

/* A tiny storage may not become a huge tensor in memory. */
static void refuses_to_blow_up(void **state)
{
    static const struct tensor_case huge = {
        "huge",         .call = V2,  .module = "torch", .storage = "ByteStorage", .key = "0",
        .numel = 1,     .offset = 0, .rank = 1,         .shape = {INT64_MAX},     .strides = {0},
        .data_bytes = 1};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct item item = {.arena = NULL};
    const struct dcpk_value *v = NULL;

    (void)state;
    dcpk_bytes_put(&item.pickle, "\x80\x02", 2);
    put_tensor(&item.pickle, &huge);
    dcpk_bytes_u8(&item.pickle, '.');
    item_pack(&item, 1, NULL);
    CHECK_FAILS(item_value(&item, &v, &err), DCPK_ERANGE, "64 times", "expanded");
    item_close(&item);
}

/* What encode writes, read_value gives back; the peer reads it in tests/interop. */
static void values_come_back(void **state)
{
    static const int64_t shape[] = {2, 3};
    static const uint8_t bytes[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const struct dcpk_value_tensor f16 = {
        .dtype = DCPK_F16, .rank = 2, .shape = shape, .n_bytes = 12, .data = bytes};
    const struct dcpk_value_tensor f8 = {
        .dtype = DCPK_F8_E5M2, .rank = 1, .shape = shape, .n_bytes = 2, .data = bytes};
    const struct dcpk_value a = {.kind = DCPK_V_TENSOR, .as.tensor = &f16};
    const struct dcpk_value b = {.kind = DCPK_V_TENSOR, .as.tensor = &f8};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *items[] = {&a, dcpk_value_int(arena, INT64_MIN, &err), &b, &a};
    const struct dcpk_value *list = dcpk_value_seq(arena, DCPK_V_LIST, items, 4, &err),
                            *back = NULL;

    (void)state;
    for (int protocol = 2; protocol <= 4; protocol += 2) {
        struct item item = {.arena = NULL};
        struct dcpk_bytes again = {.data = NULL};

        CHECK_OK(dcpk_item_encode(list, "archive", protocol, &item.archive, &err), "encode");
        CHECK_OK(dcpk_item_encode(list, "archive", protocol, &again, &err), "encode");
        CHECK(item.archive.n_bytes == again.n_bytes &&
                  memcmp(item.archive.data, again.data, again.n_bytes) == 0,
              "deterministic");
        item_open(&item);
        CHECK_OK(item_value(&item, &back, &err), "read");
        CHECK(dcpk_value_equal(list, back), "equal");
        item_close(&item);
        dcpk_bytes_release(&again);
    }
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_torchscript),        cmocka_unit_test(finds_the_fault_of_a_file),
        cmocka_unit_test(refuses_odd_persistent_ids), cmocka_unit_test(fills_tensors_of_values),
        cmocka_unit_test(outlines_point_at_tensors),  cmocka_unit_test(refuses_large_values),
        cmocka_unit_test(refuses_to_blow_up),         cmocka_unit_test(values_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
