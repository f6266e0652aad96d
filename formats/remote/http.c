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
    CURL_CAINFO = 10065,
    CURL_XFERINFOFUNCTION = 20219,
    CURL_XFERINFODATA = 10057,
    CURL_NOPROGRESS = 43,
    CURL_ERROR_BYTES = 256,
    CURL_GLOBAL_ALL = 3,
    CURL_WRITE_ERROR = 23,
};

#define LIBRARY       "libcurl.so.4"
#define N_TRIES       4
#define STALL_SECONDS 30   /* slower than: */
#define STALL_BYTES   1024 /* a second */
#define MAX_IDLE      64
#define ADVICE                                                                                     \
    "keys are read from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN "           \
    "('aws configure export-credentials' prints those of a profile or a role), the "               \
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
    struct http_options options;
    bool is_signed;
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
    int64_t length;       /* of the body; -1: unknown */
    uint64_t first;       /* by Content-Range; UINT64_MAX: unknown */
    int64_t total;        /* of the file, by Content-Range; -1: unknown */
    int64_t wait_seconds; /* Retry-After */
    char etag[HTTP_VERSION_BYTES], modified[HTTP_VERSION_BYTES], region[64];
    char refusal[2048]; /* the begin of the body where the status is no 2xx */
    size_t n_refusal;
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

dcpk_status http_new(const struct http_options *options, struct http **http, struct dcpk_error *err)
{
    struct http *h = dcpk_alloc(sizeof *h, err);

    if (h == NULL)
        return err->status;
    h->options = *options;
    h->is_signed = options->keys.id != NULL && options->keys.secret != NULL;
    pthread_mutex_init(&h->lock, NULL);
    if (http_load(h, err) != DCPK_OK) {
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
    pthread_mutex_destroy(&http->lock);
    dcpk_free(http);
}

/* ---- a request ---- */

static size_t take_body(char *data, size_t one, size_t n, void *context)
{
    struct request *r = context;

    (void)one; /* 1 */
    if (r->status / 100 != 2) {
        const size_t part = dcpk_min_size(n, sizeof r->refusal - 1 - r->n_refusal);

        memcpy(r->refusal + r->n_refusal, data, part);
        r->n_refusal += part;
        r->refusal[r->n_refusal] = '\0';
        return part; /* the rest does not matter: CURL_WRITE_ERROR */
    }
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

/* The value of a line of that name; NULL: it has another. */
static const char *head_value(const char *line, const char *name)
{
    const size_t n = strlen(name);

    if (strncasecmp(line, name, n) != 0 || line[n] != ':')
        return NULL;
    return line + n + 1 + strspn(line + n + 1, " \t");
}

/* The number that a text begins with; -1: none. */
static int64_t head_number(const char *text)
{
    int64_t number;

    return dcpk_take_size(&text, &number) ? number : -1;
}

static void answer_begin(struct request *r)
{
    r->status = 0;
    r->length = r->total = r->wait_seconds = -1;
    r->first = UINT64_MAX;
    r->etag[0] = r->modified[0] = r->region[0] = r->refusal[0] = '\0';
    r->n_refusal = 0;
}

/* A line of the answer's head, "Content-Length: 12\r\n"; after a redirection there are several. */
static size_t take_head(char *data, size_t one, size_t n, void *context)
{
    struct request *r = context;
    const char *value;
    char line[256];

    (void)one;
    snprintf(line, sizeof line, "%.*s", (int)dcpk_min_size(n, sizeof line - 1), data);
    line[strcspn(line, "\r\n")] = '\0';
    if (strncasecmp(line, "HTTP/", 5) == 0) {
        answer_begin(r);
        r->status = strtol(line + strcspn(line, " "), NULL, 10);
    } else if ((value = head_value(line, "content-length")) != NULL) {
        r->length = head_number(value);
    } else if ((value = head_value(line, "content-range")) != NULL) {
        if (dcpk_starts_with(value, "bytes ") && isdigit((unsigned char)value[6]))
            r->first = strtoull(value + 6, NULL, 10);
        value += strcspn(value, "/");
        r->total = head_number(value + (*value == '/'));
    } else if ((value = head_value(line, "etag")) != NULL) {
        snprintf(r->etag, sizeof r->etag, "%s", value);
    } else if ((value = head_value(line, "last-modified")) != NULL) {
        snprintf(r->modified, sizeof r->modified, "%s", value);
    } else if ((value = head_value(line, "x-amz-bucket-region")) != NULL) {
        snprintf(r->region, sizeof r->region, "%.63s", value);
    } else if ((value = head_value(line, "retry-after")) != NULL) {
        r->wait_seconds = head_number(value);
    }
    return n;
}

static bool is_stopped(const struct http *h)
{
    return h->options.is_stopped != NULL && h->options.is_stopped();
}

/* Called about once a second, with counts of bytes. */
static int take_progress(void *context, int64_t a, int64_t b, int64_t c, int64_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    return is_stopped(context);
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
static int request_set(struct http *h, void *easy, struct request *r, void *headers)
{
    const struct {
        int option;
        long value;
    } numbers[] = {{CURL_NOSIGNAL, 1},
                   {CURL_PROTOCOLS, dcpk_starts_with(r->url, "https:") ? 2 : 3},
                   {CURL_PATH_AS_IS, 1},
                   {CURL_CONNECTTIMEOUT, STALL_SECONDS},
                   {CURL_LOW_SPEED_LIMIT, STALL_BYTES},
                   {CURL_LOW_SPEED_TIME, STALL_SECONDS},
                   {CURL_FOLLOWLOCATION, !h->is_signed},
                   {CURL_MAXREDIRS, 5},
                   {CURL_NOPROGRESS, 0},
                   {CURL_NOBODY, r->head}};
    const struct {
        int option;
        const void *value;
    } pointers[] = {{CURL_URL, r->url},         {CURL_RANGE, r->range},
                    {CURL_WRITEDATA, r},        {CURL_HEADERDATA, r},
                    {CURL_HTTPHEADER, headers}, {CURL_ERRORBUFFER, r->reason},
                    {CURL_XFERINFODATA, h},     {CURL_CAINFO, h->options.ca_file}};
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
    if (code == 0)
        code = h->easy_setopt(easy, CURL_XFERINFOFUNCTION, take_progress);
    return code;
}

/* The signed lines of a request's head; *headers: NULL: none. */
static dcpk_status request_sign(struct http *h, const struct request *r, void **headers,
                                struct dcpk_error *err)
{
    const struct aws_request request = {r->head ? "HEAD" : "GET", r->url, time(NULL)};
    struct dcpk_bytes lines = {0};
    const char *line;

    *headers = NULL;
    if (h->is_signed)
        aws_sign(&h->options.keys, &request, &lines);
    line = (const char *)lines.data;
    for (size_t at = 0; lines.status == DCPK_OK && at < lines.n_bytes;
         at += strlen(line + at) + 1) {
        void *longer = h->slist_append(*headers, line + at);

        if (longer == NULL)
            lines.status = DCPK_ENOMEM;
        else
            *headers = longer;
    }
    (void)dcpk_bytes_status(&lines, err);
    dcpk_bytes_release(&lines);
    return err->status;
}

/* A body that ends before its time may lack a length: the connection was closed. */
static bool is_worth_another(const struct http *h, int code, const struct request *r)
{
    if (r->is_too_long || is_stopped(h))
        return false;
    return code != 0 || r->status == 429 || r->status >= 500 ||
           (r->status / 100 == 2 && r->out != NULL && r->room > 0);
}

/* Longer for each try, or as long as the server asks for. */
static void request_wait(const struct http *h, const struct request *r, int n_tries)
{
    const struct timespec pause = {0, 500000000};
    const int64_t asked = 2 * (r->wait_seconds < STALL_SECONDS ? r->wait_seconds : STALL_SECONDS);

    for (int64_t i = 0; (i < n_tries || i < asked) && !is_stopped(h); i++)
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
    void *easy = take_connection(h), *headers;
    int code = 0;

    for (int i = 1; easy != NULL && i <= N_TRIES; i++) {
        *r = asked;
        answer_begin(r);
        code = -1;
        if (r->text != NULL)
            r->text->n_bytes = 0;
        if (request_sign(h, r, &headers, err) == DCPK_OK)
            code = request_set(h, easy, r, headers);
        if (code == 0)
            code = h->easy_perform(easy);
        h->easy_reset(easy); /* connections stay open */
        h->slist_free(headers);
        if (code == CURL_WRITE_ERROR && !r->is_too_long)
            code = 0;
        if (err->status != DCPK_OK || !is_worth_another(h, code, r) || i == N_TRIES)
            break;
        request_wait(h, r, i);
    }
    if (easy == NULL)
        return dcpk_fail(err, DCPK_ENOMEM, "no memory for a connection");
    leave_connection(h, easy);
    if (err->status != DCPK_OK)
        return err->status;
    if (r->is_too_long)
        return dcpk_fail(err, DCPK_ERANGE, "'%s' has more than %zu bytes", r->url, asked.room);
    if (code != 0 && is_stopped(h))
        return dcpk_fail(err, DCPK_ECANCELLED, "stopped on request");
    if (code != 0)
        return dcpk_fail(err, DCPK_EIO, "'%s': %s", r->url,
                         first_text(r->reason, h->easy_strerror(code)));
    return DCPK_OK;
}

/* The error of an answer that is not the file. S3's have a code: "<Code>SlowDown</Code>". */
static dcpk_status refuse(const struct http *h, const struct request *r, struct dcpk_error *err)
{
    const bool is_refused = r->status == 401 || r->status == 403;
    const char *word = strstr(r->refusal, "<Code>");
    size_t n = 0;

    if (word != NULL)
        word += strlen("<Code>");
    while (word != NULL && isalpha((unsigned char)word[n]))
        n++;
    dcpk_fail(err, DCPK_EIO, "'%s'%s (HTTP status %ld%s%.*s)", r->url,
              r->status == 404 ? " is not there" : ": the server does not give it", r->status,
              dcpk_joint(n > 0, ", "), (int)n, dcpk_text_or(word, ""));
    if (h->options.is_s3 && (is_refused || r->status == 400))
        dcpk_append(err, "%s; " ADVICE, dcpk_joint(!h->is_signed, "; the request was not signed"));
    else if (h->options.is_s3 && r->status / 100 == 3)
        dcpk_append(err, "; the bucket is in another region: set AWS_REGION%s%s",
                    dcpk_joint(r->region[0] != '\0', "="), r->region);
    return err->status;
}

static const char *version_of(const struct request *r)
{
    return first_text(r->etag, r->modified);
}

dcpk_status http_look(struct http *http, const char *url, struct http_file *file,
                      struct dcpk_error *err)
{
    struct request r = {.url = url, .head = true};

    if (request_run(http, &r, err) != DCPK_OK)
        return err->status;
    if (r.status != 200 && r.status != 404)
        return refuse(http, &r, err);
    if (r.status == 200 && r.length < 0)
        return dcpk_fail(err, DCPK_EIO, "'%s': the server does not send its length", url);
    file->is_there = r.status == 200;
    file->n_bytes = (uint64_t)r.length;
    memcpy(file->version, version_of(&r), HTTP_VERSION_BYTES);
    return DCPK_OK;
}

dcpk_status http_fetch(struct http *http, const char *url, size_t limit_bytes,
                       struct dcpk_bytes *text, bool *is_there, struct dcpk_error *err)
{
    struct request r = {.url = url, .text = text, .room = limit_bytes};

    if (request_run(http, &r, err) != DCPK_OK)
        return err->status;
    if (is_there != NULL)
        *is_there = r.status == 200;
    if (r.status != 200 && (r.status != 404 || is_there == NULL))
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
    if ((r.is_too_long || st == DCPK_OK) && r.status == 200 && range->n_bytes < range->file_bytes) {
        dcpk_error_clear(err);
        return dcpk_fail(err, DCPK_EIO,
                         "'%s': the server sends whole files, not ranges: use one "
                         "with range requests",
                         url);
    }
    if (st != DCPK_OK && !r.is_too_long)
        return st;
    dcpk_error_clear(err);
    if ((r.total >= 0 && (uint64_t)r.total != range->file_bytes) ||
        (r.status / 100 == 2 && range->version != NULL &&
         strcmp(range->version, version_of(&r)) != 0))
        return dcpk_fail(err, DCPK_EIO,
                         "'%s' has changed since it was first looked at: it had %" PRIu64 " bytes",
                         url, range->file_bytes);
    if (r.status != 206 && r.status != 200)
        return refuse(http, &r, err);
    if (r.is_too_long || r.room != 0 || (r.status == 206 && r.first != range->at))
        return dcpk_fail(err, DCPK_EIO, "'%s': the server sends other bytes than %s, as asked", url,
                         text);
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
