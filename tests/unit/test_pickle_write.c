/* SPDX-License-Identifier: Apache-2.0 */
/* test_pickle_write.c - what is written reads back the same; CPython's bytes where they are ours.
 */
#include <stdio.h>

#include "tests/random.h"
#include "tests/unit/pickle_show.h"

#include "tests/unit/pickle_cases.h"

/* Write v, read that, compare; the bytes are kept in *p. False: it unfolds to more than is read. */
static bool check_round_trip(const struct dcpk_value *v, int protocol, struct dcpk_arena *arena,
                             struct dcpk_bytes *p, const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_value *again = NULL;

    p->n_bytes = 0;
    CHECK_OK(dcpk_pickle_write(v, protocol, NULL, NULL, p, &err), label);
    if (dcpk_pickle_read(p->data, p->n_bytes, NULL, arena, &again, &err) == DCPK_ERANGE)
        return false;
    CHECK_OK(err.status, label);
    CHECK(dcpk_value_equal(v, again), label);
    return true;
}

static void writes_what_it_read(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (size_t i = 0; i < sizeof pickle_cases / sizeof *pickle_cases; i++) {
        const struct pickle_case *c = &pickle_cases[i];
        struct dcpk_arena *arena = dcpk_arena_new();
        const struct dcpk_value *v = NULL;
        struct dcpk_bytes p = {0};
        size_t n;
        uint8_t *data = from_hex(c->hex, &n);

        CHECK_OK(dcpk_pickle_read(data, n, NULL, arena, &v, &err), c->label);
        CHECK(check_round_trip(v, 4, arena, &p, c->label), c->label);
        CHECK(check_round_trip(v, 2, arena, &p, c->label), c->label);
        if (c->is_exact) {
            CHECK_EQ_INT(p.n_bytes, n, c->label);
            CHECK(memcmp(p.data, data, n) == 0, c->label);
        }
        free(data);
        dcpk_bytes_release(&p);
        dcpk_arena_free(arena);
    }
}

/* ---- random trees ---- */

struct forest {
    struct dcpk_arena *arena;
    uint64_t seed;
    const struct dcpk_value *made[64]; /* any of these may be used again: shared nodes */
    size_t n_made;
};

static uint64_t draw(struct forest *f, uint64_t n)
{
    return random_below(&f->seed, n);
}

static const struct dcpk_value *make_raw(struct forest *f, enum dcpk_value_kind kind, size_t n)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value *v = dcpk_arena_alloc(f->arena, sizeof *v, &err);
    char *data = dcpk_arena_alloc(f->arena, n + 1, &err);

    for (size_t i = 0; i < n; i++)
        data[i] = (char)draw(f, kind == DCPK_V_STR ? 128 : 256);
    if (kind == DCPK_V_BIGINT)
        data[n - 1] = 0x55; /* the fewest bytes: what the reader gives */
    v->kind = kind;
    v->n = n;
    v->as.str = data;
    return v;
}

static const struct dcpk_value *make_leaf(struct forest *f)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    double d;
    uint64_t bits;

    switch (draw(f, 8)) {
    case 0:
        return dcpk_value_none();
    case 1:
        return dcpk_value_bool(draw(f, 2) == 0);
    case 2:
        bits = draw(f, UINT64_MAX);
        memcpy(&d, &bits, sizeof d);
        return dcpk_value_float(f->arena, d, &err);
    case 3:
        return make_raw(f, DCPK_V_BIGINT, 9 + draw(f, 300));
    case 4:
        return make_raw(f, DCPK_V_BYTES, draw(f, 300));
    case 5:
        return make_raw(f, DCPK_V_STR, draw(f, 300));
    default:
        bits = (uint64_t)1 << draw(f, 64);
        return dcpk_value_int(f->arena, (int64_t)(draw(f, 2) == 0 ? bits : ~bits), &err);
    }
}

static const struct dcpk_value *pick(struct forest *f)
{
    if (f->n_made == 0 || draw(f, 3) == 0)
        return make_leaf(f);
    return f->made[draw(f, f->n_made)];
}

/* Keys of one dict differ: the pair's number leads each. */
static const struct dcpk_value *make_dict(struct forest *f, size_t n)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value_pair *pairs = dcpk_arena_array(f->arena, n, sizeof *pairs, &err);

    for (size_t i = 0; i < n; i++) {
        const struct dcpk_value *both[] = {dcpk_value_int(f->arena, (int64_t)i, &err),
                                           make_leaf(f)};
        pairs[i].key =
            draw(f, 2) == 0 ? both[0] : dcpk_value_seq(f->arena, DCPK_V_TUPLE, both, 2, &err);
        pairs[i].value = pick(f);
    }
    return draw(f, 2) == 0 ? dcpk_value_dict(f->arena, pairs, n, &err)
                           : dcpk_value_namespace(f->arena, pairs, n, &err);
}

static const struct dcpk_value *make_object(struct forest *f)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value *v = dcpk_arena_alloc(f->arena, sizeof *v, &err);
    struct dcpk_value_object *o = dcpk_arena_alloc(f->arena, sizeof *o, &err);
    const struct dcpk_value *items[] = {pick(f), pick(f)};
    struct dcpk_value_pair *pair = dcpk_arena_alloc(f->arena, sizeof *pair, &err);

    *pair = (struct dcpk_value_pair){pick(f), pick(f)};
    *o = (struct dcpk_value_object){.module = "some.module",
                                    .name = draw(f, 2) == 0 ? "Outer.Inner.Most" : "Plain",
                                    .is_reduce = draw(f, 2) == 0};
    o->args = dcpk_value_seq(f->arena, DCPK_V_TUPLE, items, draw(f, 3), &err);
    if (draw(f, 2) == 0) {
        o->items = dcpk_value_seq(f->arena, DCPK_V_LIST, items, 2, &err)->as.items;
        o->n_items = 1 + draw(f, 2);
    }
    o->pairs = pair;
    o->n_pairs = draw(f, 2);
    o->state = draw(f, 2) == 0 ? pick(f) : NULL;
    v->kind = DCPK_V_OBJECT;
    v->as.object = o;
    return v;
}

static const struct dcpk_value *make_tree(struct forest *f)
{
    static const enum dcpk_value_kind kinds[] = {DCPK_V_TUPLE, DCPK_V_LIST, DCPK_V_SET};
    struct dcpk_error err = DCPK_ERROR_INIT;
    const size_t n_nodes = 1 + draw(f, 60);

    for (f->n_made = 0; f->n_made < n_nodes; f->n_made++) {
        const size_t n = draw(f, 20) == 0 ? 990 + draw(f, 20) : draw(f, 6);
        const struct dcpk_value *items[1024];
        const uint64_t what = draw(f, 6);
        for (size_t i = 0; i < n; i++)
            items[i] = pick(f);
        if (what < 3)
            f->made[f->n_made] = dcpk_value_seq(f->arena, kinds[what], items, n, &err);
        else
            f->made[f->n_made] = what < 5 ? make_dict(f, n) : make_object(f);
    }
    return f->made[n_nodes - 1];
}

static void random_trees_come_back(void **state)
{
    int n_back = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct forest f = {.arena = dcpk_arena_new(), .seed = seed};
        const struct dcpk_value *v = make_tree(&f);
        struct dcpk_bytes p = {0};
        char label[32];

        snprintf(label, sizeof label, "seed %d", (int)seed);
        n_back += check_round_trip(v, 2, f.arena, &p, label);
        n_back += check_round_trip(v, 4, f.arena, &p, label);
        dcpk_bytes_release(&p);
        dcpk_arena_free(f.arena);
    }
    CHECK(n_back >= 360, "nearly all are read");
}

/* ---- the rest of the contract ---- */

static void shared_nodes_are_written_once(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *v = dcpk_value_seq(arena, DCPK_V_LIST, NULL, 0, &err);
    const struct dcpk_value *again = NULL;
    struct dcpk_bytes p = {0};

    (void)state;
    for (int i = 0; i < 18; i++) {
        const struct dcpk_value *twice[] = {v, v};
        v = dcpk_value_seq(arena, DCPK_V_TUPLE, twice, 2, &err);
    }
    for (int protocol = 2; protocol <= 4; protocol += 2) {
        p.n_bytes = 0;
        CHECK_OK(dcpk_pickle_write(v, protocol, NULL, NULL, &p, &err), "2^18 leaves");
        CHECK(p.n_bytes < 400, "2^18 leaves");
        CHECK_OK(dcpk_pickle_read(p.data, p.n_bytes, NULL, arena, &again, &err), "2^18 leaves");
        CHECK(dcpk_value_at(again, 0) == dcpk_value_at(again, 1), "identity");
    }
    dcpk_bytes_release(&p);
    dcpk_arena_free(arena);
}

static dcpk_status put_marker(void *context, struct dcpk_pickle_writer *w,
                              const struct dcpk_value_tensor *tensor, struct dcpk_error *err)
{
    (void)context;
    (void)err;
    dcpk_pickle_put_int(w, tensor->rank);
    return DCPK_OK;
}

static void tensors_go_through_the_callback(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value_tensor tensor = {.dtype = DCPK_F32, .rank = 3};
    const struct dcpk_value leaf = {.kind = DCPK_V_TENSOR, .as.tensor = &tensor};
    const struct dcpk_value *twice[] = {&leaf, &leaf};
    const struct dcpk_value *v = dcpk_value_seq(arena, DCPK_V_LIST, twice, 2, &err);
    struct dcpk_bytes p = {0};

    (void)state;
    dcpk_bytes_text(&p, "before");
    CHECK_FAILS(dcpk_pickle_write(v, 2, NULL, NULL, &p, &err), DCPK_EUNSUPPORTED,
                "writing a pickle: a float32 tensor", "no callback");
    CHECK_EQ_INT(p.n_bytes, 6, "what was there stays, nothing is added");
    p.n_bytes = 0;
    dcpk_error_clear(&err);
    CHECK_OK(dcpk_pickle_write(v, 2, put_marker, NULL, &p, &err), "callback");
    CHECK_EQ_INT(p.n_bytes, 14, "callback");
    CHECK(memcmp(p.data,
                 "\x80\x02]q\x00(K\x03q\x01h\x01"
                 "e.",
                 14) == 0,
          "callback, memo");
    dcpk_bytes_release(&p);
    dcpk_arena_free(arena);
}

static void refuses_endless_nesting(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *v = dcpk_value_none();
    struct dcpk_bytes p = {0};

    (void)state;
    for (int i = 0; i < 2000; i++)
        v = dcpk_value_seq(arena, DCPK_V_TUPLE, &v, 1, &err);
    CHECK_FAILS(dcpk_pickle_write(v, 4, NULL, NULL, &p, &err), DCPK_ERANGE, "deeper than 1000",
                "2000");
    dcpk_bytes_release(&p);
    dcpk_arena_free(arena);
}

/* pickletools.dis of CPython says the same of these bytes. */
static void pieces_append_opcodes(void **state)
{
    static const char want[] = "\x80\x02"
                               "ctorch\nSize\nq\x00"
                               "X\x01\x00\x00\x00kq\x01"
                               "h\x01h\x00"
                               "K\x05M\x00\x01J\xff\xff\xff\xff\x8a\x05\x00\x00\x00\x80\x00"
                               "G?\xf8\x00\x00\x00\x00\x00\x00N.";
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes p = {0};
    struct dcpk_pickle_writer *w = dcpk_pickle_writer_new(&p, 2, &err);
    uint32_t size;

    (void)state;
    dcpk_pickle_put_global(w, "torch", "Size");
    size = dcpk_pickle_put_memo(w);
    dcpk_pickle_put_text(w, "k", 1);
    dcpk_pickle_put_text(w, "k", 1);
    dcpk_pickle_put_get(w, size);
    dcpk_pickle_put_int(w, 5);
    dcpk_pickle_put_int(w, 256);
    dcpk_pickle_put_int(w, -1);
    dcpk_pickle_put_int(w, INT64_C(1) << 31);
    dcpk_pickle_put_float(w, 1.5);
    dcpk_pickle_put_op(w, DCPK_OP_NONE);
    dcpk_pickle_put_op(w, DCPK_OP_STOP);
    CHECK_OK(dcpk_bytes_status(&p, &err), "pieces");
    CHECK_EQ_INT(p.n_bytes, sizeof want - 1, "pieces");
    CHECK(memcmp(p.data, want, sizeof want - 1) == 0, "pieces");
    dcpk_pickle_writer_free(w);
    dcpk_pickle_writer_free(NULL);
    dcpk_bytes_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_what_it_read),
        cmocka_unit_test(random_trees_come_back),
        cmocka_unit_test(shared_nodes_are_written_once),
        cmocka_unit_test(tensors_go_through_the_callback),
        cmocka_unit_test(refuses_endless_nesting),
        cmocka_unit_test(pieces_append_opcodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
