/* SPDX-License-Identifier: Apache-2.0 */
/* test_pickle_read.c - CPython's pickles as trees, and pickles that lie. */
#include "tests/unit/pickle_show.h"

#include "tests/unit/pickle_cases.h"

static void reads_what_cpython_writes(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (size_t i = 0; i < sizeof pickle_cases / sizeof *pickle_cases; i++) {
        const struct pickle_case *c = &pickle_cases[i];
        struct dcpk_arena *arena = dcpk_arena_new();
        const struct dcpk_value *v = NULL;
        struct dcpk_bytes text = {0};
        size_t n;
        uint8_t *data = from_hex(c->hex, &n);

        CHECK_OK(dcpk_pickle_read(data, n, NULL, arena, &v, &err), c->label);
        free(data); /* nothing may be borrowed from it */
        show(v, &text);
        dcpk_bytes_u8(&text, 0);
        CHECK_EQ_STR((const char *)text.data, c->tree, c->label);
        dcpk_bytes_release(&text);
        dcpk_arena_free(arena);
    }
}

/* Opcodes that CPython's pickler does not emit today but its unpickler and old writers know. */
static const struct {
    const char *label, *hex, *tree;
} odd_cases[] = {
    {"no PROTO", "4b012e", "1"},
    {"DUP", "4b0532862e", "(5,5,)"},
    {"POP", "4b014b02302e", "1"},
    {"POP of a MARK", "4b0128302e", "1"},
    {"POP_MARK", "4b01284b024b03312e", "1"},
    {"SHORT_BINSTRING", "5501612e", "\"a\""},
    {"SHORT_BINSTRING not UTF-8", "5501ff2e", "b\"\\xff\""},
    {"BINSTRING", "54010000007a2e", "\"z\""},
    {"LONG1 of no bytes", "8a002e", "0"},
    {"LONG1 padded", "8a0cfeffffffffffffffffffffff2e", "-2"},
    {"LONG4 small", "8b01000000802e", "-128"},
    {"BINUNICODE8", "8d0200000000000000c3a92e", "\"\\xc3\\xa9\""},
    {"BINBYTES8", "8e0100000000000000002e", "b\"\\x00\""},
    {"BYTEARRAY8", "960100000000000000612e", "reduce:builtins.bytearray(b\"a\",)"},
    {"no items behind a MARK", "285d28657d28758f289028912874742e", "([],{},<>,<>,(),)"},
    {"items in two batches", "5d94284b014b02654b03612e", "[1,2,3,]"},
    {"FROZENSET", "284b01912e", "<1,>"},
    {"set call on a list", "636275696c74696e730a7365740a5d4b016185522e", "<1,>"},
    {"set call on a number stays an object", "636275696c74696e730a7365740a4b0185522e",
     "reduce:builtins.set(1,)"},
    {"NEWOBJ_EX without keywords", "63610a620a297d922e", "new:a.b()"},
    {"memo numbers of choice", "4b0771054b086805872e", "(7,8,7,)"},
    {"memo set twice", "4b0171004b0271006800872e", "(1,2,2,)"},
    {"MEMOIZE takes the count of entries", "4b0171054b02946801872e", "(1,2,2,)"},
    {"object with items and pairs", "63610a620a29814b01614b024b0373285d7d652e",
     "new:a.b()[1,[],{},]{2:3,}"},
    {"object that grows by five, one and three",
     "63610a620a2981284b014b024b034b044b05654b0661284b074b084b0965284b014b014b024b024b034b03754b044"
     "b04732e",
     "new:a.b()[1,2,3,4,5,6,7,8,9,]{1:1,2:2,3:3,4:4,}"},
    {"state on an OrderedDict, then more pairs",
     "63636f6c6c656374696f6e730a4f726465726564446963740a29524b014b02737d624b034b04732e",
     "reduce:collections.OrderedDict(){1:2,3:4,}|{}"},
    {"list grown after it was shared", "5d710068004b0161862e", "([1,],[1,],)"},
};

static void reads_odd_opcodes(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (size_t i = 0; i < sizeof odd_cases / sizeof *odd_cases; i++) {
        struct dcpk_arena *arena = dcpk_arena_new();
        const struct dcpk_value *v = NULL;
        struct dcpk_bytes text = {0};
        size_t n;
        uint8_t *data = from_hex(odd_cases[i].hex, &n);

        CHECK_OK(dcpk_pickle_read(data, n, NULL, arena, &v, &err), odd_cases[i].label);
        show(v, &text);
        dcpk_bytes_u8(&text, 0);
        CHECK_EQ_STR((const char *)text.data, odd_cases[i].tree, odd_cases[i].label);
        free(data);
        dcpk_bytes_release(&text);
        dcpk_arena_free(arena);
    }
}

static const struct {
    const char *label, *hex;
    dcpk_status status;
    const char *message;
    struct dcpk_pickle_limits limits;
} hostile_cases[] = {
    {"empty", "", .status = DCPK_EFORMAT, .message = "ends at byte 0 without STOP"},
    {"no STOP", "80024e", .status = DCPK_EFORMAT, .message = "ends at byte 3 without STOP"},
    {"nothing at STOP", "2e", .status = DCPK_EFORMAT,
     .message = "opcode 0x2e at byte 0: STOP with 0 values"},
    {"two values at STOP", "4e4e2e", .status = DCPK_EFORMAT, .message = "STOP with 2 values"},
    {"MARK at STOP", "284e2e", .status = DCPK_EFORMAT, .message = "1 marks"},
    {"bytes after STOP", "4e2e00", .status = DCPK_EFORMAT, .message = "1 bytes after STOP"},
    {"protocol 6", "80064e2e", .status = DCPK_EUNSUPPORTED, .message = "protocol 6, at most 5"},
    {"cut number", "4a0102", .status = DCPK_EFORMAT,
     .message = "opcode 0x4a at byte 0: field of 4 bytes"},
    {"text past the end", "80028c096162632e", .status = DCPK_EFORMAT,
     .message = "opcode 0x8c at byte 2: length of 9 bytes passes the end, 4 are left"},
    {"bytes of 2^64 - 1", "8effffffffffffffff2e", .status = DCPK_EFORMAT,
     .message = "length of 18446744073709551615"},
    {"text of 2^63", "8d00000000000000802e", .status = DCPK_EFORMAT,
     .message = "length of 9223372036854775808"},
    {"negative LONG4", "8bffffffff2e", .status = DCPK_EFORMAT,
     .message = "length of 4294967295 bytes"},
    {"frame past the end", "95ffffffffffffff7f4e2e", .status = DCPK_EFORMAT,
     .message = "frame of 9223372036854775807"},
    {"text not UTF-8", "8c02c3282e", .status = DCPK_EFORMAT,
     .message = "not UTF-8: 0xc3 at byte 0"},
    {"overlong UTF-8", "8c02c0802e", .status = DCPK_EFORMAT, .message = "not UTF-8"},
    {"past U+10FFFF", "8c04f49080802e", .status = DCPK_EFORMAT, .message = "not UTF-8"},
    {"tuple from nothing", "862e", .status = DCPK_EFORMAT,
     .message = "needs 2 values on the stack, finds 0"},
    {"pop below a MARK", "4e2885742e", .status = DCPK_EFORMAT,
     .message = "needs 1 values on the stack, finds 0"},
    {"TUPLE without MARK", "4e742e", .status = DCPK_EFORMAT, .message = "needs a MARK"},
    {"POP of nothing", "302e", .status = DCPK_EFORMAT, .message = "needs 1 values"},
    {"POP of a call", "4b01636f730a73797374656d0a4b018552302e", .status = DCPK_EUNSUPPORTED,
     .message = "takes a object off the stack again"},
    {"POP of a name", "4b01636f730a73797374656d0a302e", .status = DCPK_EUNSUPPORTED,
     .message = "takes a name off"},
    {"POP of a list", "4b015d302e", .status = DCPK_EUNSUPPORTED, .message = "takes a list off"},
    {"POP_MARK of a call", "4b012829636f730a73797374656d0a2952312e", .status = DCPK_EUNSUPPORTED,
     .message = "takes a tuple off"},
    {"append to an int", "4b014b02612e", .status = DCPK_EUNSUPPORTED,
     .message = "cannot be done to a int"},
    {"append to a tuple", "294b02612e", .status = DCPK_EUNSUPPORTED,
     .message = "cannot be done to a tuple"},
    {"pairs of three", "7d284b014b024b03752e", .status = DCPK_EFORMAT,
     .message = "3 values are not pairs"},
    {"set items of a list", "5d4b014b02732e", .status = DCPK_EUNSUPPORTED,
     .message = "cannot be done to a list"},
    {"add to a frozenset", "289128902e", .status = DCPK_EUNSUPPORTED,
     .message = "adds to a frozenset"},
    {"state of a list", "5d7d622e", .status = DCPK_EUNSUPPORTED,
     .message = "cannot be done to a list"},
    {"state of a dict", "7d7d622e", .status = DCPK_EUNSUPPORTED,
     .message = "cannot be done to a dict"},
    {"second state", "63610a620a29817d627d622e", .status = DCPK_EUNSUPPORTED,
     .message = "a.b a second state"},
    {"call with a list", "63610a620a5d522e", .status = DCPK_EFORMAT,
     .message = "arguments of a call are a list"},
    {"call of an int", "4b0129522e", .status = DCPK_EFORMAT, .message = "calls a int"},
    {"keywords are a list", "63610a620a295d922e", .status = DCPK_EFORMAT,
     .message = "keywords of a call are a list"},
    {"encode past latin-1", "635f636f646563730a656e636f64650a8c03e282ac8c066c6174696e3186522e",
     .status = DCPK_EFORMAT, .message = "past latin-1"},
    {"memo not set", "68002e", .status = DCPK_EFORMAT, .message = "memo number 0 was never set"},
    {"memo far away", "4e72ffffffff2e", .status = DCPK_ERANGE,
     .message = "memo number 4294967295 passes"},
    {"memo of nothing", "71002e", .status = DCPK_EFORMAT, .message = "needs 1 values"},
    {"memo limit", "4e944e94302e", .status = DCPK_ERANGE,
     .message = "memo number 1 passes the limit of 1", .limits = {.max_memo = 1}},
    {"node limit", "284b014b024b03742e", .status = DCPK_ERANGE, .message = "limit of 2 values",
     .limits = {.max_nodes = 2}},
    {"global without a name", "63610a0a2e", .status = DCPK_EFORMAT, .message = "name is empty"},
    {"global with a NUL", "6361000a620a2e", .status = DCPK_EFORMAT, .message = "NUL"},
    {"global cut", "63610a62", .status = DCPK_EFORMAT, .message = "passes the end"},
    {"global of dots", "63610a622e2e630a2e", .status = DCPK_EFORMAT,
     .message = "'b..c' has an empty part"},
    {"STACK_GLOBAL of ints", "4b014b02932e", .status = DCPK_EFORMAT,
     .message = "are a int and a int, not text"},
    {"persistent id", "4b0185512e", .status = DCPK_EUNSUPPORTED,
     .message = "persistent ids do not belong"},
    {"EXT1", "82012e", .status = DCPK_EUNSUPPORTED,
     .message = "opcode 0x82 at byte 0: EXT1 is not read"},
    {"EXT2", "8301002e", .status = DCPK_EUNSUPPORTED, .message = "EXT2"},
    {"EXT4", "84010000002e", .status = DCPK_EUNSUPPORTED, .message = "EXT4"},
    {"INST", "2869610a620a2e", .status = DCPK_EUNSUPPORTED, .message = "INST"},
    {"OBJ", "286f2e", .status = DCPK_EUNSUPPORTED, .message = "OBJ"},
    {"PERSID", "50610a2e", .status = DCPK_EUNSUPPORTED, .message = "PERSID"},
    {"NEXT_BUFFER", "972e", .status = DCPK_EUNSUPPORTED, .message = "NEXT_BUFFER"},
    {"READONLY_BUFFER", "4e982e", .status = DCPK_EUNSUPPORTED, .message = "READONLY_BUFFER"},
    {"protocol 0 integer", "49310a2e", .status = DCPK_EUNSUPPORTED, .message = "INT (protocol 0)"},
    {"unknown opcode", "4eff2e", .status = DCPK_EUNSUPPORTED,
     .message = "opcode 0xff at byte 1: unknown opcode"},
    {"list in itself", "5d71006800612e", .status = DCPK_EUNSUPPORTED,
     .message = "list made at byte 0 holds itself"},
    {"dict in itself through a tuple", "7d71004b01680085732e", .status = DCPK_EUNSUPPORTED,
     .message = "dict made at byte 0 holds itself"},
    {"object in its state", "63610a620a298171005d680061622e", .status = DCPK_EUNSUPPORTED,
     .message = "object made at byte 6"},
    {"deep by two", "5d5d5d61612e", .status = DCPK_ERANGE,
     .message = "made at byte 2 nests deeper than 2", .limits = {.max_depth = 2}},
    {"deep through a shared node", "5d285d5d6171015d5d68016161652e", .status = DCPK_ERANGE,
     .message = "made at byte 0 nests deeper than 4", .limits = {.max_depth = 4}},
    {"text key twice", "7d288c01614b018c01614b02752e", .status = DCPK_EFORMAT,
     .message = "dict made at byte 0 holds key 'a' twice"},
    {"integer key twice", "7d284b014b014b014b02752e", .status = DCPK_EFORMAT,
     .message = "holds key 1 twice"},
};

static void refuses_lies(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (size_t i = 0; i < sizeof hostile_cases / sizeof *hostile_cases; i++) {
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_pickle_options options = {.limits = hostile_cases[i].limits};
        const struct dcpk_value *v = NULL;
        size_t n;
        uint8_t *data = from_hex(hostile_cases[i].hex, &n);

        CHECK_FAILS(dcpk_pickle_read(data, n, &options, arena, &v, &err), hostile_cases[i].status,
                    hostile_cases[i].message, hostile_cases[i].label);
        CHECK(v == NULL, hostile_cases[i].label);
        free(data);
        dcpk_arena_free(arena);
    }
}

static void offsets_count_from_the_file(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_pickle_options options = {.base_bytes = 1000};
    const struct dcpk_value *v = NULL;

    (void)state;
    CHECK_FAILS(dcpk_pickle_read("N\x82\x01.", 4, &options, arena, &v, &err), DCPK_EUNSUPPORTED,
                "at byte 1001", "base");
    CHECK_FAILS(dcpk_pickle_read("]q\0h\0a.", 7, &options, arena, &v, &err), DCPK_EUNSUPPORTED,
                "list made at byte 1000", "base of a node");
    dcpk_arena_free(arena);
}

/* A double key among many is found too, whatever its kind; the same bytes as text and number are
 * two keys. */
static void finds_double_keys_in_large_dicts(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *v = NULL;
    struct dcpk_bytes p = {0};
    size_t n;

    (void)state;
    dcpk_bytes_text(&p, "}(");
    for (int i = 0; i < 100; i++)
        dcpk_bytes_printf(&p, "K%cNU\x08%c%s%cN", 1 + i, 1 + i, "......", 'x');
    n = p.n_bytes;
    dcpk_bytes_text(&p, "u.");
    CHECK_OK(dcpk_pickle_read(p.data, p.n_bytes, NULL, arena, &v, &err), "all differ");
    CHECK_EQ_INT(v->n, 200, "all differ");
    p.n_bytes = n;
    dcpk_bytes_text(&p, "U\x08"
                        "A......xNu.");
    CHECK_FAILS(dcpk_pickle_read(p.data, p.n_bytes, NULL, arena, &v, &err), DCPK_EFORMAT,
                "holds key 'A......x' twice", "text");
    p.n_bytes = n;
    dcpk_bytes_text(&p, "KANu.");
    CHECK_FAILS(dcpk_pickle_read(p.data, p.n_bytes, NULL, arena, &v, &err), DCPK_EFORMAT,
                "holds key 65 twice", "int");
    dcpk_bytes_release(&p);
    dcpk_arena_free(arena);
}

/* Sharing and repeated calls unfold nothing: memory stays a small multiple of the pickle. */
static void bombs_stay_small(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *v = NULL;
    struct dcpk_bytes p = {0};

    (void)state;
    dcpk_bytes_text(&p, ")");
    for (int i = 0; i < 150; i++)
        dcpk_bytes_text(&p, "2\x86"); /* 2^150 leaves if it were unfolded */
    dcpk_bytes_text(&p, ".");
    CHECK_FAILS(dcpk_pickle_read(p.data, p.n_bytes, NULL, arena, &v, &err), DCPK_ERANGE,
                "made at byte 40 shares its parts so often that it unfolds", "tuples");
    p.n_bytes = 39;
    dcpk_bytes_text(&p, ".");
    CHECK_OK(dcpk_pickle_read(p.data, p.n_bytes, NULL, arena, &v, &err), "a million values");
    p.n_bytes = 0;
    dcpk_bytes_text(&p, "(c_codecs\nencode\nq\x01X\x40\x42\x0f");
    dcpk_bytes_u8(&p, 0); /* one text of 1000000 bytes, encoded 20000 times */
    for (int i = 0; i < 1000000; i++)
        dcpk_bytes_u8(&p, 'a');
    dcpk_bytes_text(&p, "q\x02U\x06latin1q\x03");
    for (int i = 0; i < 20000; i++)
        dcpk_bytes_text(&p, "h\x01h\x02h\x03\x86R0");
    dcpk_bytes_text(&p, "t.");
    CHECK_OK(dcpk_pickle_read(p.data, p.n_bytes, NULL, arena, &v, &err), "encode");
    p.n_bytes = 0;
    dcpk_bytes_text(&p, "](cbuiltins\nset\nq\x01](");
    for (int i = 0; i < 100000; i++)
        dcpk_bytes_text(&p, "N");
    dcpk_bytes_text(&p, "eq\x02");
    for (int i = 0; i < 20000; i++)
        dcpk_bytes_text(&p, "h\x01h\x02\x85R");
    dcpk_bytes_text(&p, "e.");
    CHECK_FAILS(dcpk_pickle_read(p.data, p.n_bytes, NULL, arena, &v, &err), DCPK_ERANGE, "unfolds",
                "sets");
    p.n_bytes = 0;
    dcpk_bytes_text(&p, "](");
    for (int k = 1; k <= 2; k++) { /* two names of 255 bytes, put together 200000 times */
        dcpk_bytes_text(&p, "\x8c\xff");
        for (int i = 0; i < 255; i++)
            dcpk_bytes_u8(&p, (uint8_t)('a' + k));
        dcpk_bytes_u8(&p, 'q');
        dcpk_bytes_u8(&p, (uint8_t)k);
    }
    for (int i = 0; i < 200000; i++)
        dcpk_bytes_text(&p, "h\x01h\x02\x93");
    dcpk_bytes_text(&p, "e.");
    CHECK_OK(dcpk_pickle_read(p.data, p.n_bytes, NULL, arena, &v, &err), "names");
    CHECK(dcpk_arena_used_bytes(arena) <= 64 << 20, "all of them");
    dcpk_bytes_release(&p);
    dcpk_arena_free(arena);
}

/* The first name that Python would import and no checkpoint holds, wherever it stands. */
static void names_what_is_unknown(void **state)
{
    static const struct {
        const char *label, *pickle, *module, *name;
    } cases[] = {
        {"none", "ccollections\nOrderedDict\n)R.", NULL, NULL},
        {"a call", "]cos\nsystem\n(tRa.", "os", "system"},
        {"a name", "]ccollections\nOrderedDict\nacos\nsystem\na.", "os", "system"},
        {"a nested class", "cbuiltins\ngetattr\n(ccollections\nOrderedDict\nU\1xtR.", "collections",
         "OrderedDict.x"},
        {"an attribute of an object", "cbuiltins\ngetattr\n(cargparse\nNamespace\n)\x81U\1xtR.",
         "builtins", "getattr"},
        {"a call of a call", "cargparse\nNamespace\n)R)R.", "", ""},
        {"in a set made by a call", "cbuiltins\nset\n(]ca\nb\natR.", "a", "b"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_pickle_name unknown = {"unset", "unset"};
        const struct dcpk_pickle_options options = {.unknown = &unknown};
        const struct dcpk_value *v = NULL;

        CHECK_OK(
            dcpk_pickle_read(cases[i].pickle, strlen(cases[i].pickle), &options, arena, &v, &err),
            cases[i].label);
        if (cases[i].name == NULL) {
            CHECK(unknown.name == NULL, cases[i].label);
        } else {
            CHECK_EQ_STR(unknown.module, cases[i].module, cases[i].label);
            CHECK_EQ_STR(unknown.name, cases[i].name, cases[i].label);
        }
        dcpk_arena_free(arena);
    }
}

static dcpk_status find_storage(void *context, struct dcpk_arena *arena,
                                const struct dcpk_value *pid, const struct dcpk_value **value,
                                struct dcpk_error *err)
{
    (void)arena;
    if (dcpk_value_as_str(dcpk_value_at(pid, 0)) == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "no storage");
    *value = context;
    return DCPK_OK;
}

static void resolves_persistent_ids(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *one = dcpk_value_int(arena, 1, &err);
    const struct dcpk_value *list = dcpk_value_seq(arena, DCPK_V_LIST, &one, 1, &err);
    struct dcpk_pickle_options options = {.persistent = find_storage,
                                          .context = (void *)(uintptr_t)list};
    const struct dcpk_value *v = NULL;

    (void)state;
    CHECK_OK(dcpk_pickle_read("U\1s\x85Q\x85.", 7, &options, arena, &v, &err), "found");
    CHECK(dcpk_value_equal(dcpk_value_at(v, 0), list), "found");
    CHECK_FAILS(dcpk_pickle_read("N\x85Q.", 4, &options, arena, &v, &err), DCPK_EFORMAT,
                "no storage", "callback fails");
    CHECK_FAILS(dcpk_pickle_read("]\x85Q.", 4, &options, arena, &v, &err), DCPK_EUNSUPPORTED,
                "not a flat tuple", "id with a list");
    CHECK_FAILS(dcpk_pickle_read("U\1s\x85QNa.", 8, &options, arena, &v, &err), DCPK_EUNSUPPORTED,
                "cannot be done to a list", "append to what was found");
    dcpk_arena_free(arena);
}

static void knows_its_classes(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *v = NULL;

    (void)state;
    CHECK(dcpk_pickle_is_known("_codecs", "encode"), "first module");
    CHECK(dcpk_pickle_is_known("types", "SimpleNamespace"), "last module");
    CHECK(dcpk_pickle_is_known("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"),
          "inner");
    CHECK(dcpk_pickle_is_known("torch", "float8_e4m3fn"), "dtype");
    CHECK(!dcpk_pickle_is_known("os", "system"), "os.system");
    CHECK(!dcpk_pickle_is_known("builtins", "eval"), "eval");
    CHECK(!dcpk_pickle_is_known("argparse", "Namespac"), "a prefix");
    CHECK_OK(dcpk_pickle_read("cos\nsystem\nU\2ls\x85R.", 18, NULL, arena, &v, &err), "os.system");
    CHECK(dcpk_value_is_object(v, "os", "system") && !v->as.object->is_known,
          "os.system stays inert");
    CHECK_OK(dcpk_pickle_read("cargparse\nNamespace\n)\x81}b.", 25, NULL, arena, &v, &err),
             "Namespace");
    CHECK(v->as.object->is_known && !v->as.object->is_reduce, "Namespace");
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_cpython_writes),
        cmocka_unit_test(reads_odd_opcodes),
        cmocka_unit_test(refuses_lies),
        cmocka_unit_test(offsets_count_from_the_file),
        cmocka_unit_test(finds_double_keys_in_large_dicts),
        cmocka_unit_test(bombs_stay_small),
        cmocka_unit_test(names_what_is_unknown),
        cmocka_unit_test(resolves_persistent_ids),
        cmocka_unit_test(knows_its_classes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
