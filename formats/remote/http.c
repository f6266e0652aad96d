/* SPDX-License-Identifier: Apache-2.0 */
/* http.c - libcurl, by dlopen. */
#include "formats/remote/http.h"

#include <ctype.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/symbols.h"
#include "lib/base/text.h"

/*
 * The part of libcurl's ABI that is used here. Names and numbers: curl/curl.h, which has kept them
 * since they were added; soname libcurl.so.4.
 */
enum {
    CURL_URL = 10002,
    CURL_RANGE = 10007,
    CURL_USERPWD = 10005,
    CURL_ERRORBUFFER = 10010,
    CURL_HTTPHEADER = 10023,
    CURL_WRITEDATA = 10001,
    CURL_WRITEFUNCTION = 20011,
    CURL_HEADERDATA = 10029,
    CURL_HEADERFUNCTION = 20079,
    CURL_LOW_SPEED_LIMIT = 19,
    CURL_LOW_SPEED_TIME = 20,
    CURL_NOBODY = 44,
    CURL_FOLLOWLOCATION = 52,
    CURL_MAXREDIRS = 68,
    CURL_CONNECTTIMEOUT = 78,
    CURL_NOSIGNAL = 99,
    CURL_PROTOCOLS = 181, /* bits: 1 http, 2 https */
    CURL_PATH_AS_IS = 234,
    CURL_AWS_SIGV4 = 10305, /* 7.75 */
    CURL_ERROR_BYTES = 256,
    CURL_GLOBAL_ALL = 3,
};

#define LIBRARY       "libcurl.so.4"
#define N_TRIES       4
#define STALL_SECONDS 30 /* without a byte */
#define MAX_IDLE      64
#define ADVICE                                                                                     \
    "keys are read from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, the "      \
    "region from AWS_REGION"

struct http {
    int (*global_init)(long flags);
    void *(*easy_init)(void);
    void (*easy_cleanup)(void *easy);
    void (*easy_reset)(void *easy);
    int (*easy_setopt)(void *easy, int option, ...);
    int (*easy_perform)(void *easy);
    const char *(*easy_strerror)(int code);
    void *(*slist_append)(void *list, const char *text);
    void (*slist_free)(void *list);
    void *headers; /* of every request */
    char *user;    /* "id:secret"; NULL: nothing is signed */
    char *signature;
    pthread_mutex_t lock;
    void *idle[MAX_IDLE];
    size_t n_idle;
};

/* One request: the wishes, and the answer. */
struct request {
    const char *url, *range; /* range: NULL: all of it */
    bool head;               /* no body is wanted */
    struct dcpk_bytes *text; /* where the body goes, or: */
    uint8_t *out;
    size_t room; /* bytes that still fit */
    bool is_too_long;
    long status;
    bool has_length;
    uint64_t length, total; /* of the body; of the file, by Content-Range: UINT64_MAX: unknown */
    char reason[CURL_ERROR_BYTES];
};

/* ---- the library ---- */

static dcpk_status http_load(struct http *h, struct dcpk_error *err)
{
    const struct dcpk_symbol symbols[] = {
        {"curl_global_init", &h->global_init},     {"curl_easy_init", &h->easy_init},
        {"curl_easy_cleanup", &h->easy_cleanup},   {"curl_easy_reset", &h->easy_reset},
        {"curl_easy_setopt", &h->easy_setopt},     {"curl_easy_perform", &h->easy_perform},
        {"curl_easy_strerror", &h->easy_strerror}, {"curl_slist_append", &h->slist_append},
        {"curl_slist_free_all", &h->slist_free},
    };
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const char *missing;

    if (library == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "reading from a server needs libcurl (on Debian and Ubuntu: apt-get "
                         "install libcurl4): %s",
                         dlerror());
    missing = dcpk_symbols_find(library, symbols, DCPK_COUNT(symbols));
    if (missing != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, LIBRARY " lacks %s", missing);
    if (h->global_init(CURL_GLOBAL_ALL) != 0)
        return dcpk_fail(err, DCPK_EIO, LIBRARY " could not be started");
    return DCPK_OK;
}

static dcpk_status take_keys(struct http *h, const struct http_keys *keys, struct dcpk_error *err)
{
    struct dcpk_bytes user = {0}, signature = {0}, token = {0};

    dcpk_bytes_printf(&user, "%s:%s%c", keys->id, keys->secret, 0);
    dcpk_bytes_printf(&signature, "aws:amz:%s:s3%c", keys->region, 0);
    dcpk_bytes_printf(&token, "x-amz-security-token: %s%c", dcpk_text_or(keys->token, ""), 0);
    h->user = (char *)user.data;
    h->signature = (char *)signature.data;
    if (dcpk_bytes_status(&user, err) == DCPK_OK && dcpk_bytes_status(&signature, err) == DCPK_OK &&
        dcpk_bytes_status(&token, err) == DCPK_OK) {
        h->headers = h->slist_append(NULL, "x-amz-content-sha256: UNSIGNED-PAYLOAD");
        if (h->headers != NULL && keys->token != NULL)
            h->headers = h->slist_append(h->headers, (const char *)token.data);
        if (h->headers == NULL)
            dcpk_fail(err, DCPK_ENOMEM, "no memory for a request");
    }
    dcpk_bytes_release(&token);
    return err->status;
}

dcpk_status http_new(const struct http_keys *keys, struct http **http, struct dcpk_error *err)
{
    struct http *h = dcpk_alloc(sizeof *h, err);

    if (h == NULL)
        return err->status;
    pthread_mutex_init(&h->lock, NULL);
    if (http_load(h, err) != DCPK_OK || (keys != NULL && take_keys(h, keys, err) != DCPK_OK)) {
        http_free(h);
        return err->status;
    }
    *http = h;
    return DCPK_OK;
}

void http_free(struct http *http)
{
    if (http == NULL)
        return;
    while (http->n_idle > 0)
        http->easy_cleanup(http->idle[--http->n_idle]);
    if (http->headers != NULL)
        http->slist_free(http->headers);
    pthread_mutex_destroy(&http->lock);
    dcpk_free(http->user);
    dcpk_free(http->signature);
    dcpk_free(http);
}

/* ---- a request ---- */

static size_t take_body(char *data, size_t one, size_t n, void *context)
{
    struct request *r = context;

    (void)one; /* 1 */
    if (r->status != 0 && r->status / 100 != 2)
        return n; /* what a refusal looks like does not matter */
    if (n > r->room) {
        r->is_too_long = true;
        return 0;
    }
    r->room -= n;
    if (r->text != NULL) {
        dcpk_bytes_put(r->text, data, n);
        return n;
    }
    memcpy(r->out, data, n);
    r->out += n;
    return n;
}

/* A line of the answer's head, "Content-Length: 12\r\n"; after a redirection there are several. */
static size_t take_head(char *data, size_t one, size_t n, void *context)
{
    struct request *r = context;
    char line[256];

    (void)one;
    snprintf(line, sizeof line, "%.*s", (int)dcpk_min_size(n, sizeof line - 1), data);
    if (strncasecmp(line, "HTTP/", 5) == 0) {
        const char *blank = strchr(line, ' ');

        r->status = 0;
        if (blank != NULL)
            r->status = strtol(blank, NULL, 10);
        r->has_length = false;
        r->total = UINT64_MAX;
    } else if (strncasecmp(line, "content-length:", 15) == 0) {
        r->length = strtoull(line + 15, NULL, 10);
        r->has_length = true;
    } else if (strncasecmp(line, "content-range:", 14) == 0) {
        const char *slash = strchr(line, '/');

        if (slash != NULL && isdigit((unsigned char)slash[1]))
            r->total = strtoull(slash + 1, NULL, 10);
    }
    return n;
}

static void *take_connection(struct http *h)
{
    void *easy = NULL;

    pthread_mutex_lock(&h->lock);
    if (h->n_idle > 0)
        easy = h->idle[--h->n_idle];
    pthread_mutex_unlock(&h->lock);
    if (easy == NULL)
        easy = h->easy_init();
    return easy;
}

static void leave_connection(struct http *h, void *easy)
{
    bool is_kept = false;

    h->easy_reset(easy); /* connections stay open */
    pthread_mutex_lock(&h->lock);
    if (h->n_idle < MAX_IDLE) {
        h->idle[h->n_idle++] = easy;
        is_kept = true;
    }
    pthread_mutex_unlock(&h->lock);
    if (!is_kept)
        h->easy_cleanup(easy);
}

/* Returns 0, or libcurl's code. */
static int request_set(const struct http *h, void *easy, struct request *r)
{
    const struct {
        int option;
        long value;
    } numbers[] = {{CURL_NOSIGNAL, 1},
                   {CURL_PROTOCOLS, 3},
                   {CURL_PATH_AS_IS, 1},
                   {CURL_CONNECTTIMEOUT, STALL_SECONDS},
                   {CURL_LOW_SPEED_LIMIT, 1},
                   {CURL_LOW_SPEED_TIME, STALL_SECONDS},
                   {CURL_FOLLOWLOCATION, h->user == NULL},
                   {CURL_MAXREDIRS, 5},
                   {CURL_NOBODY, r->head}};
    const struct {
        int option;
        const void *value;
    } pointers[] = {
        {CURL_URL, r->url},      {CURL_RANGE, r->range},        {CURL_ERRORBUFFER, r->reason},
        {CURL_WRITEDATA, r},     {CURL_HEADERDATA, r},          {CURL_HTTPHEADER, h->headers},
        {CURL_USERPWD, h->user}, {CURL_AWS_SIGV4, h->signature}};
    int code = 0;

    for (size_t i = 0; code == 0 && i < DCPK_COUNT(numbers); i++)
        code = h->easy_setopt(easy, numbers[i].option, numbers[i].value);
    for (size_t i = 0; code == 0 && i < DCPK_COUNT(pointers); i++)
        if (pointers[i].value != NULL)
            code = h->easy_setopt(easy, pointers[i].option, pointers[i].value);
    if (code == 0)
        code = h->easy_setopt(easy, CURL_WRITEFUNCTION, take_body);
    if (code == 0)
        code = h->easy_setopt(easy, CURL_HEADERFUNCTION, take_head);
    return code;
}

static bool is_worth_another(int code, const struct request *r)
{
    if (r->is_too_long)
        return false;
    return code != 0 || r->status == 429 || r->status >= 500;
}

static void request_wait(int n_tries)
{
    const struct timespec pause = {n_tries / 2, n_tries % 2 * 500000000};

    nanosleep(&pause, NULL);
}

/* The first text, unless it is empty. */
static const char *first_text(const char *text, const char *otherwise)
{
    return *text != '\0' ? text : otherwise;
}

/* Ask, as often as it takes. `r` is filled in; its body is only there for a status of 2xx. */
static dcpk_status request_run(struct http *h, struct request *r, struct dcpk_error *err)
{
    const struct request asked = *r;
    void *easy = take_connection(h);
    int code = -1;

    for (int i = 1; easy != NULL && i <= N_TRIES; i++) {
        *r = asked;
        if (r->text != NULL)
            r->text->n_bytes = 0;
        code = request_set(h, easy, r);
        if (code == 0)
            code = h->easy_perform(easy);
        if (!is_worth_another(code, r) || i == N_TRIES)
            break;
        request_wait(i);
    }
    if (easy == NULL)
        return dcpk_fail(err, DCPK_ENOMEM, "no memory for a connection");
    leave_connection(h, easy);
    if (r->is_too_long)
        return dcpk_fail(err, DCPK_ERANGE, "'%s' has more than %zu bytes", r->url, asked.room);
    if (code != 0)
        return dcpk_fail(err, DCPK_EIO, "'%s': %s", r->url,
                         first_text(r->reason, h->easy_strerror(code)));
    return DCPK_OK;
}

/* The error of an answer that is not the file. */
static dcpk_status refuse(const struct http *h, const struct request *r, struct dcpk_error *err)
{
    const bool is_refused = r->status == 401 || r->status == 403;

    if (r->status == 404)
        return dcpk_fail(err, DCPK_EIO, "'%s' is not there (HTTP status 404)", r->url);
    dcpk_fail(err, DCPK_EIO, "'%s': the server answers with HTTP status %ld%s", r->url, r->status,
              dcpk_joint(is_refused, ", which is a refusal"));
    if (is_refused && h->user == NULL)
        dcpk_append(err, "; the request was not signed: " ADVICE);
    else if (is_refused)
        dcpk_append(err, "; " ADVICE);
    else if (r->status / 100 == 3 && h->user != NULL)
        dcpk_append(err, "; the bucket is in another region: set AWS_REGION");
    return err->status;
}

dcpk_status http_look(struct http *http, const char *url, struct http_file *file,
                      struct dcpk_error *err)
{
    struct request r = {.url = url, .head = true};

    if (request_run(http, &r, err) != DCPK_OK)
        return err->status;
    *file = (struct http_file){r.status == 200, r.length};
    if (r.status == 404 || r.status == 403)
        return DCPK_OK;
    if (r.status != 200)
        return refuse(http, &r, err);
    if (!r.has_length)
        return dcpk_fail(err, DCPK_EIO, "'%s': the server does not send its length", url);
    return DCPK_OK;
}

dcpk_status http_fetch(struct http *http, const char *url, size_t limit_bytes,
                       struct dcpk_bytes *text, bool *is_there, struct dcpk_error *err)
{
    struct request r = {.url = url, .text = text, .room = limit_bytes};

    if (request_run(http, &r, err) != DCPK_OK)
        return err->status;
    *is_there = r.status == 200;
    if (r.status != 200 && r.status != 404)
        return refuse(http, &r, err);
    return dcpk_bytes_status(text, err);
}

dcpk_status http_read(struct http *http, const char *url, const struct http_range *range, void *out,
                      struct dcpk_error *err)
{
    char text[64];
    struct request r = {.url = url, .range = text, .out = out, .room = (size_t)range->n_bytes};
    dcpk_status st;

    snprintf(text, sizeof text, "%" PRIu64 "-%" PRIu64, range->at, range->at + range->n_bytes - 1);
    st = request_run(http, &r, err);
    if ((st == DCPK_ERANGE || st == DCPK_OK) && r.status == 200 &&
        range->n_bytes < range->file_bytes) {
        dcpk_error_clear(err);
        return dcpk_fail(err, DCPK_EIO,
                         "'%s': the server sends whole files, not ranges: use one "
                         "with range requests",
                         url);
    }
    if (st != DCPK_OK)
        return st;
    if (r.status != 206 && r.status != 200)
        return refuse(http, &r, err);
    if (r.room != 0 || (r.total != UINT64_MAX && r.total != range->file_bytes))
        return dcpk_fail(err, DCPK_EIO,
                         "'%s' has changed since it was first looked at: it had %" PRIu64 " bytes",
                         url, range->file_bytes);
    return DCPK_OK;
}

/* ---- URLs ---- */

void http_put_path(struct dcpk_bytes *url, const char *path, bool is_value)
{
    for (const unsigned char *c = (const unsigned char *)path; *c != '\0'; c++)
        if (isalnum(*c) || strchr("-._~", *c) != NULL || (*c == '/' && !is_value))
            dcpk_bytes_u8(url, *c);
        else
            dcpk_bytes_printf(url, "%%%02X", *c);
}

bool http_resolve(char *text)
{
    char *to = text, digits[3] = "";

    for (; *text != '\0'; text++) {
        if (*text == '%') {
            if (!isxdigit((unsigned char)text[1]) || !isxdigit((unsigned char)text[2]))
                return false;
            memcpy(digits, text + 1, 2);
            *to = (char)strtol(digits, NULL, 16);
            if (*to++ == '\0')
                return false;
            text += 2;
        } else {
            *to++ = *text;
        }
    }
    *to = '\0';
    return true;
}
