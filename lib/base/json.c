/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - reading JSON: a strict look over the bytes, then cJSON. */
#include "lib/base/json.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "lib/base/alloc.h"
#include "lib/base/map.h"

#define MAX_EXACT_INT                                                                              \
    INT64_C(9007199254740992) /* 2^53: below it a double holds every whole number */

/*
 * cJSON is lax (control bytes, 01, -.5, a NUL inside a string that cuts it, bad UTF-8) and recurses
 * 1000 deep. So the bytes are looked over first, in a loop; cJSON then sees balanced brackets,
 * ended strings and proper numbers. Grammar: RFC 8259.
 */
struct scan {
    const uint8_t *text;
    size_t n;
    size_t at;
    char open[DCPK_JSON_MAX_DEPTH]; /* brackets that wait for their end */
    int depth;
    struct dcpk_bytes *is_float; /* a byte for each number, in their order */
    struct dcpk_error *err;
};

static dcpk_status bad(struct scan *s, const char *what)
{
    return dcpk_fail(s->err, DCPK_EFORMAT, "JSON: %s at byte %zu", what, s->at);
}

/* The next byte; 0, which no token holds, at the end. */
static uint8_t peek(const struct scan *s)
{
    return s->at < s->n ? s->text[s->at] : 0;
}

static bool scan_digits(struct scan *s)
{
    const size_t start = s->at;

    while (peek(s) >= '0' && peek(s) <= '9')
        s->at++;
    return s->at > start;
}

/* -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)? */
static dcpk_status scan_number(struct scan *s)
{
    bool is_float = false;

    if (peek(s) == '-')
        s->at++;
    if (peek(s) == '0')
        s->at++;
    else if (!scan_digits(s))
        return bad(s, "a digit is missing");
    if (peek(s) == '.') {
        is_float = true;
        s->at++;
        if (!scan_digits(s))
            return bad(s, "a digit is missing");
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        is_float = true;
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        if (!scan_digits(s))
            return bad(s, "a digit is missing");
    }
    if (peek(s) >= '0' && peek(s) <= '9')
        return bad(s, "a number begins with 0");
    dcpk_bytes_u8(s->is_float, is_float);
    return DCPK_OK;
}

/* From the opening quote past the closing one. cJSON checks the escapes, except \u0000. */
static dcpk_status scan_string(struct scan *s)
{
    size_t used;

    for (s->at++; peek(s) != '"'; s->at += used) {
        if (s->at == s->n)
            return bad(s, "a string has no end");
        if (peek(s) < 0x20)
            return bad(s, "a control byte in a string");
        used = peek(s) == '\\' ? 2 : 1;
        if (s->n - s->at < used)
            return bad(s, "a string has no end");
        if (s->n - s->at >= 6 && memcmp(s->text + s->at, "\\u0000", 6) == 0)
            return bad(s, "a NUL in a string");
        if (peek(s) >= 0x80 &&
            dcpk_utf8_decode(s->text + s->at, s->n - s->at, &used) == DCPK_BAD_UTF8)
            return bad(s, "a byte that is not UTF-8");
    }
    s->at++;
    return DCPK_OK;
}

static dcpk_status scan_bracket(struct scan *s)
{
    const char c = (char)peek(s);

    if (c == '{' || c == '[') {
        if (s->depth == DCPK_JSON_MAX_DEPTH)
            return dcpk_fail(s->err, DCPK_EFORMAT, "JSON: nested deeper than %d at byte %zu",
                             DCPK_JSON_MAX_DEPTH, s->at);
        s->open[s->depth++] = c;
    } else {
        if (s->depth == 0 || s->open[s->depth - 1] != (c == '}' ? '{' : '['))
            return bad(s, "a bracket that closes none");
        s->depth--;
    }
    s->at++;
    return DCPK_OK;
}

static dcpk_status scan_token(struct scan *s)
{
    const uint8_t c = peek(s);

    if (c == '"')
        return scan_string(s);
    if (c == '-' || (c >= '0' && c <= '9'))
        return scan_number(s);
    if (c == '{' || c == '[' || c == '}' || c == ']')
        return scan_bracket(s);
    if (c == 0 || strchr(" \t\r\n,:aeflnrstu", c) == NULL) /* the letters of true, false, null */
        return bad(s, "an unexpected byte");
    s->at++;
    return DCPK_OK;
}

static dcpk_status scan_text(const char *text, size_t n, struct dcpk_bytes *is_float,
                             struct dcpk_error *err)
{
    struct scan s = {.text = (const uint8_t *)text, .n = n, .is_float = is_float, .err = err};

    while (s.at < n) {
        const dcpk_status st = scan_token(&s);
        if (st != DCPK_OK)
            return st;
    }
    if (s.depth > 0)
        return bad(&s, "a bracket has no end");
    return dcpk_bytes_status(is_float, err);
}

/*
 * cJSON's hooks have no context and its parser writes a global of its own (global_error): one parse
 * at a time, and the two flags live under the same lock.
 */
static struct {
    pthread_mutex_t lock;
    bool hooked;
    bool out_of_memory;
} cjson = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *hook_alloc(size_t n_bytes)
{
    struct dcpk_error err;
    void *memory = dcpk_alloc(n_bytes, &err);

    if (memory == NULL)
        cjson.out_of_memory = true;
    return memory;
}

/* Runs cJSON over n >= 1 bytes. DCPK_ENOMEM or DCPK_EFORMAT with the byte. */
static dcpk_status run_cjson(const char *text, size_t n, cJSON **root, struct dcpk_error *err)
{
    const char *end = text;
    bool out_of_memory;

    pthread_mutex_lock(&cjson.lock);
    if (!cjson.hooked) {
        cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = hook_alloc, .free_fn = dcpk_free});
        cjson.hooked = true;
    }
    cjson.out_of_memory = false;
    *root = cJSON_ParseWithLengthOpts(text, n, &end, 0);
    out_of_memory = cjson.out_of_memory;
    pthread_mutex_unlock(&cjson.lock);
    if (*root == NULL && out_of_memory)
        return dcpk_fail(err, DCPK_ENOMEM, "out of memory in %zu bytes of JSON", n);
    if (*root == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "JSON: syntax error at byte %zu", (size_t)(end - text));
    for (; end < text + n; end++) {
        if (strchr(" \t\r\n", *end) == NULL)
            return dcpk_fail(err, DCPK_EFORMAT, "JSON: more text after the value at byte %zu",
                             (size_t)(end - text));
    }
    return DCPK_OK;
}

/* Fail when two members of `object` have one name. */
static dcpk_status check_keys(const cJSON *object, struct dcpk_error *err)
{
    struct dcpk_map seen = {0};
    dcpk_status st = DCPK_OK;
    uint64_t found;
    bool existed;

    for (const cJSON *member = object->child; member != NULL && st == DCPK_OK;
         member = member->next) {
        st = dcpk_map_put(&seen, member->string, strlen(member->string), 0, &existed, &found, err);
        if (st == DCPK_OK && existed)
            st = dcpk_fail(err, DCPK_EFORMAT, "JSON: an object has key '%.200s' twice",
                           member->string);
    }
    dcpk_map_release(&seen);
    return st;
}

/*
 * check_keys for all objects, depth first; the scan has bounded the depth. That is the order of the
 * text: the n-th number's entry of is_float goes into valueint, which nothing else reads.
 */
static dcpk_status check_nodes(cJSON *root, const struct dcpk_bytes *is_float,
                               struct dcpk_error *err)
{
    cJSON *path[DCPK_JSON_MAX_DEPTH + 1]; /* the node looked at and those around it */
    size_t n_numbers = 0;
    int depth = 0;

    path[0] = root;
    while (depth >= 0) {
        cJSON *node = path[depth];
        if (cJSON_IsObject(node) && check_keys(node, err) != DCPK_OK)
            return err->status;
        if (cJSON_IsNumber(node)) {
            assert(n_numbers < is_float->n_bytes);
            node->valueint = is_float->data[n_numbers++];
        }
        if (node->child != NULL) {
            path[++depth] = node->child;
            continue;
        }
        while (depth > 0 && path[depth]->next == NULL)
            depth--;
        if (depth == 0)
            break;
        path[depth] = path[depth]->next;
    }
    return DCPK_OK;
}

dcpk_status dcpk_json_parse(const char *text, size_t n, struct dcpk_json **doc,
                            struct dcpk_error *err)
{
    struct dcpk_bytes is_float = {0};
    cJSON *root = NULL;
    dcpk_status st;

    if (n == 0)
        return dcpk_fail(err, DCPK_EFORMAT, "JSON: no text at byte 0");
    st = scan_text(text, n, &is_float, err);
    if (st != DCPK_OK)
        goto out;
    st = run_cjson(text, n, &root, err);
    if (st != DCPK_OK)
        goto out;
    st = check_nodes(root, &is_float, err);
    if (st != DCPK_OK)
        goto out;
    *doc = (struct dcpk_json *)root; /* struct dcpk_json is never defined: it is cJSON's node */
    root = NULL;
out:
    cJSON_Delete(root);
    dcpk_bytes_release(&is_float);
    return st;
}

void dcpk_json_free(struct dcpk_json *doc)
{
    cJSON_Delete((cJSON *)doc);
}

static const cJSON *node_of(const struct dcpk_json *node)
{
    return (const cJSON *)node;
}

enum dcpk_json_kind dcpk_json_kind(const struct dcpk_json *node)
{
    switch (node_of(node)->type & 0xff) { /* the upper bits are cJSON's notes on ownership */
    case cJSON_True:
    case cJSON_False:
        return DCPK_JSON_BOOL;
    case cJSON_Number:
        return DCPK_JSON_NUMBER;
    case cJSON_String:
        return DCPK_JSON_STRING;
    case cJSON_Array:
        return DCPK_JSON_ARRAY;
    case cJSON_Object:
        return DCPK_JSON_OBJECT;
    default:
        return DCPK_JSON_NULL;
    }
}

const struct dcpk_json *dcpk_json_first(const struct dcpk_json *node)
{
    return (const struct dcpk_json *)node_of(node)->child;
}

const struct dcpk_json *dcpk_json_next(const struct dcpk_json *node)
{
    return (const struct dcpk_json *)node_of(node)->next;
}

const char *dcpk_json_key(const struct dcpk_json *member)
{
    return node_of(member)->string;
}

const struct dcpk_json *dcpk_json_member(const struct dcpk_json *object, const char *key)
{
    if (!cJSON_IsObject(node_of(object)))
        return NULL;
    return (const struct dcpk_json *)cJSON_GetObjectItemCaseSensitive(node_of(object), key);
}

const char *dcpk_json_string(const struct dcpk_json *node)
{
    return cJSON_GetStringValue(node_of(node));
}

bool dcpk_json_int(const struct dcpk_json *node, int64_t *out)
{
    double v;

    /* 2^53 itself may be 2^53 + 1 as written */
    if (!dcpk_json_double(node, &v) || !(v > -(double)MAX_EXACT_INT) ||
        !(v < (double)MAX_EXACT_INT) || (double)(int64_t)v != v)
        return false;
    *out = (int64_t)v;
    return true;
}

bool dcpk_json_double(const struct dcpk_json *node, double *out)
{
    if (!cJSON_IsNumber(node_of(node)))
        return false;
    *out = node_of(node)->valuedouble;
    return true;
}

bool dcpk_json_is_float(const struct dcpk_json *node)
{
    return cJSON_IsNumber(node_of(node)) && node_of(node)->valueint != 0;
}

bool dcpk_json_bool(const struct dcpk_json *node, bool *out)
{
    if (!cJSON_IsBool(node_of(node)))
        return false;
    *out = cJSON_IsTrue(node_of(node));
    return true;
}
