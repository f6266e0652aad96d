/* SPDX-License-Identifier: Apache-2.0 */
/* server.c - a small server of files on 127.0.0.1, as plain HTTP with pages of links, or as S3.
 *
 *   server ROOT PORT_FILE [s3] [KEY=VALUE...]
 *
 * Writes its port to PORT_FILE and serves until it is killed. GET / shows links to what is in a
 * folder, without names that begin with a dot, as some servers do. s3: /bucket?list-type=2 lists
 * two keys a page, in XML; parameters must be in the order of their names. Faults:
 *   signed=ID    403 unless Authorization names this key, region, service and an unsigned payload
 *   busy=N       the first N requests: 503
 *   cut=N        the first N files: the connection is closed after half of the bytes
 *   ranges=0     ranges are not known: the whole file
 *   grown=1      ranges are answered as if the file had one byte more
 *   shifted=1    ranges are answered with the bytes from one byte later on
 *   replaced=N   after N files all have another ETag
 *   huge=1       files have a length of 2^63
 *   whole=0      S3's listings go on without a token for the next page
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_KEYS 2
#define MAX_KEYS  4096
#define MAX_PATH  8192

static const char *root, *signed_id = "";
static bool is_s3, has_ranges = true, has_grown, is_shifted, is_huge, is_whole = true;
static int n_busy, n_cut, n_until_replaced = 1000000;

struct asked {
    char path[2048]; /* decoded, without the query */
    char query[2048];
    char authorization[1024], payload[128];
    bool is_head, has_range;
    uint64_t first, last;
};

/* "a/b" or, without a slash, "ab". */
static void join(char path[MAX_PATH], const char *a, const char *slash, const char *b)
{
    const int n = snprintf(path, MAX_PATH, "%s%s%s", a, slash, b);

    if (n < 0 || n >= MAX_PATH)
        abort();
}

static void resolve(char *text)
{
    char *to = text;

    for (; *text != '\0'; text++, to++) {
        char digits[3] = {0};

        *to = *text;
        if (*text == '%' && text[1] != '\0' && text[2] != '\0') {
            memcpy(digits, text + 1, 2);
            *to = (char)strtol(digits, NULL, 16);
            text += 2;
        }
    }
    *to = '\0';
}

/* ---- answers ---- */

static void send_head(FILE *out, const char *status, uint64_t n_bytes, const char *more)
{
    fprintf(out, "HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %" PRIu64 "\r\n%s\r\n",
            status, n_bytes, more);
}

static void send_error(FILE *out, const char *status, const char *code)
{
    send_head(out, status, strlen(code) + 13, "");
    fprintf(out, "<Code>%s</Code>", code);
}

static void send_text(FILE *out, const struct asked *asked, const char *text)
{
    send_head(out, "200 OK", strlen(text), "");
    if (!asked->is_head)
        fputs(text, out);
}

static void send_file(FILE *out, const struct asked *asked, const char *path)
{
    char more[128] = "", tagged[256], *data;
    FILE *file = fopen(path, "rb");
    struct stat info;
    uint64_t first = 0, n;

    if (file == NULL || fstat(fileno(file), &info) != 0)
        abort();
    n = (uint64_t)info.st_size;
    if (asked->has_range && has_ranges && asked->last < n) {
        first = asked->first;
        snprintf(more, sizeof more, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n",
                 first + is_shifted, asked->last + is_shifted, n + has_grown);
        n = asked->last - first + 1;
    }
    data = malloc(n + 1);
    if (data == NULL || fseeko(file, (off_t)first, SEEK_SET) != 0 || fread(data, 1, n, file) != n)
        abort();
    fclose(file);
    snprintf(tagged, sizeof tagged, "%sETag: \"%d\"\r\n", more, n_until_replaced > 0);
    n_until_replaced -= !asked->is_head;
    send_head(out, more[0] != '\0' ? "206 Partial Content" : "200 OK",
              is_huge ? UINT64_C(1) << 63 : n, tagged);
    if (!asked->is_head && n_cut > 0) {
        n_cut--;
        n /= 2;
    }
    if (!asked->is_head)
        fwrite(data, 1, n, out);
    free(data);
}

/* ---- listings ---- */

static void send_links(FILE *out, const struct asked *asked, const char *path)
{
    static char text[1 << 20];
    size_t n = (size_t)snprintf(text, sizeof text, "<a href=\"../\">..</a>\n");
    DIR *folder = opendir(path);
    const struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char inner[MAX_PATH];
        struct stat info;

        join(inner, path, "/", entry->d_name);
        if (entry->d_name[0] != '.' && stat(inner, &info) == 0)
            n += (size_t)snprintf(text + n, sizeof text - n, "<a href=\"%s%s\">x</a>\n",
                                  entry->d_name, S_ISDIR(info.st_mode) ? "/" : "");
    }
    if (folder != NULL)
        closedir(folder);
    send_text(out, asked, text);
}

/* The value of a parameter in the query, decoded; "": it is not there. */
static const char *parameter(const struct asked *asked, const char *name, char value[2048])
{
    const size_t n = strlen(name);
    const char *at = asked->query;

    for (; *at != '\0'; at += strcspn(at, "&"), at += *at == '&')
        if (strncmp(at, name, n) == 0 && at[n] == '=') {
            snprintf(value, 2048, "%.*s", (int)strcspn(at + n + 1, "&"), at + n + 1);
            resolve(value);
            return value;
        }
    return "";
}

static char *keys[MAX_KEYS];
static size_t n_keys;

static void collect(const char *folder, const char *prefix)
{
    DIR *stream = opendir(folder);
    const struct dirent *entry;

    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        char path[MAX_PATH], key[MAX_PATH], full[MAX_PATH];
        struct stat info;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        join(path, folder, "/", entry->d_name);
        join(key, prefix, "", entry->d_name);
        if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
            join(full, key, "", "/");
            collect(path, full);
        } else if (n_keys < MAX_KEYS) {
            keys[n_keys++] = strdup(key);
        }
    }
    if (stream != NULL)
        closedir(stream);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_ordered(const char *query)
{
    const char *next;

    for (; (next = strchr(query, '&')) != NULL; query = next + 1)
        if (strcmp(query, next + 1) >= 0 && strncmp(query, next + 1, strcspn(query, "=")) >= 0)
            return false;
    return true;
}

static void send_keys(FILE *out, const struct asked *asked)
{
    static char text[1 << 20];
    char value[2048], prefix[2048], after[2048];
    const bool is_flat = parameter(asked, "delimiter", value)[0] != '\0';
    size_t n, n_sent = 0;

    if (!is_ordered(asked->query)) {
        send_error(out, "403 Forbidden", "SignatureDoesNotMatch");
        return;
    }
    snprintf(prefix, sizeof prefix, "%s", parameter(asked, "prefix", value));
    snprintf(after, sizeof after, "%s", parameter(asked, "continuation-token", value));
    n_keys = 0;
    collect(root, "");
    qsort(keys, n_keys, sizeof *keys, by_name);
    n = (size_t)snprintf(text, sizeof text,
                         "<?xml?>\n<ListBucketResult xmlns=\"x\">"
                         "<EncodingType>url</EncodingType><IsTruncated>%s"
                         "</IsTruncated>",
                         is_whole ? "false" : "true");
    for (size_t i = 0; i < n_keys; i++) {
        char path[MAX_PATH], shown[MAX_PATH];
        struct stat info;

        if (strncmp(keys[i], prefix, strlen(prefix)) != 0 || strcmp(keys[i], after) <= 0 ||
            (is_flat && strchr(keys[i] + strlen(prefix), '/') != NULL))
            continue;
        if (n_sent++ == PAGE_KEYS) {
            n += (size_t)snprintf(text + n, sizeof text - n,
                                  "<NextContinuationToken>%s</NextContinuationToken>", keys[i - 1]);
            break;
        }
        join(path, root, "/", keys[i]);
        join(shown, "", "", keys[i]);
        for (char *blank = shown; (blank = strchr(blank, ' ')) != NULL;)
            *blank = '+';
        if (stat(path, &info) == 0)
            n += (size_t)snprintf(text + n, sizeof text - n,
                                  "<Contents><Key>%s</Key><ETag>&#34;1&#34;</ETag><Size>%jd"
                                  "</Size></Contents>",
                                  shown, (intmax_t)info.st_size);
    }
    snprintf(text + n, sizeof text - n, "</ListBucketResult>");
    send_text(out, asked, text);
}

/* ---- requests ---- */

static bool is_allowed(const struct asked *asked)
{
    char credential[256];

    if (signed_id[0] == '\0')
        return true;
    snprintf(credential, sizeof credential, "AWS4-HMAC-SHA256 Credential=%s/", signed_id);
    return strncmp(asked->authorization, credential, strlen(credential)) == 0 &&
           strstr(asked->authorization, "/eu-west-1/s3/aws4_request") != NULL &&
           strcmp(asked->payload, "UNSIGNED-PAYLOAD") == 0;
}

static void answer(FILE *out, const struct asked *asked)
{
    const char *path = asked->path;
    char full[MAX_PATH];
    struct stat info;

    if (is_s3 && strncmp(path, "/bucket", 7) == 0)
        path += 7;
    join(full, root, "", path);
    if (n_busy > 0) {
        n_busy--;
        send_error(out, "503 Slow Down", "SlowDown");
    } else if (!is_allowed(asked)) {
        send_error(out, "403 Forbidden", "AccessDenied");
    } else if (is_s3 && path == asked->path) {
        send_error(out, "404 Not Found", "NoSuchBucket");
    } else if (is_s3 && asked->query[0] != '\0') {
        send_keys(out, asked);
    } else if (stat(full, &info) != 0) {
        send_error(out, "404 Not Found", "NoSuchKey");
    } else if (S_ISDIR(info.st_mode)) {
        send_links(out, asked, full);
    } else {
        send_file(out, asked, full);
    }
}

/* ---- connections ---- */

/* Reads one request; false: there is none. */
static bool read_request(FILE *in, struct asked *asked)
{
    char line[4096], url[2048], method[16];

    memset(asked, 0, sizeof *asked);
    if (fgets(line, sizeof line, in) == NULL || sscanf(line, "%15s %2047s", method, url) != 2)
        return false;
    asked->is_head = strcmp(method, "HEAD") == 0;
    snprintf(asked->path, sizeof asked->path, "%.*s", (int)strcspn(url, "?"), url);
    if (strchr(url, '?') != NULL)
        snprintf(asked->query, sizeof asked->query, "%s", strchr(url, '?') + 1);
    resolve(asked->path);
    while (fgets(line, sizeof line, in) != NULL && strcmp(line, "\r\n") != 0) {
        line[strcspn(line, "\r")] = '\0';
        if (strncasecmp(line, "authorization: ", 15) == 0)
            snprintf(asked->authorization, sizeof asked->authorization, "%.1000s", line + 15);
        else if (strncasecmp(line, "x-amz-content-sha256: ", 22) == 0)
            snprintf(asked->payload, sizeof asked->payload, "%.100s", line + 22);
        else if (strncasecmp(line, "range: bytes=", 13) == 0)
            asked->has_range =
                sscanf(line + 13, "%" SCNu64 "-%" SCNu64, &asked->first, &asked->last) == 2;
    }
    return true;
}

/* One request a connection, one connection at a time. */
static void serve(int fd)
{
    FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
    struct asked asked;

    if (read_request(in, &asked))
        answer(out, &asked);
    fclose(out);
    fclose(in);
}

static void take_setting(const char *text)
{
    const char *value = strchr(text, '=');

    if (strcmp(text, "s3") == 0)
        is_s3 = true;
    else if (value == NULL)
        abort();
    else if (strncmp(text, "signed=", 7) == 0)
        signed_id = value + 1;
    else if (strncmp(text, "busy=", 5) == 0)
        n_busy = (int)strtol(value + 1, NULL, 10);
    else if (strncmp(text, "cut=", 4) == 0)
        n_cut = (int)strtol(value + 1, NULL, 10);
    else if (strncmp(text, "replaced=", 9) == 0)
        n_until_replaced = (int)strtol(value + 1, NULL, 10);
    else if (strcmp(text, "shifted=1") == 0)
        is_shifted = true;
    else if (strcmp(text, "huge=1") == 0)
        is_huge = true;
    else if (strcmp(text, "whole=0") == 0)
        is_whole = false;
    else if (strcmp(text, "ranges=0") == 0)
        has_ranges = false;
    else if (strcmp(text, "grown=1") == 0)
        has_grown = true;
    else
        abort();
}

static void tell_port(int listener, const char *path)
{
    struct sockaddr_in at;
    socklen_t n = sizeof at;
    char hidden[MAX_PATH];
    FILE *file;

    join(hidden, path, "", ".new");
    file = fopen(hidden, "w");
    if (file == NULL || getsockname(listener, (struct sockaddr *)&at, &n) != 0)
        abort();
    fprintf(file, "%d\n", ntohs(at.sin_port));
    if (fclose(file) != 0 || rename(hidden, path) != 0)
        abort();
}

int main(int argc, char **argv)
{
    const struct sockaddr_in any = {.sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int listener = socket(AF_INET, SOCK_STREAM, 0);

    if (argc < 3 || listener < 0 ||
        bind(listener, (const struct sockaddr *)&any, sizeof any) != 0 || listen(listener, 16) != 0)
        return 1;
    root = argv[1];
    for (int i = 3; i < argc; i++)
        take_setting(argv[i]);
    signal(SIGPIPE, SIG_IGN);
    tell_port(listener, argv[2]);
    for (;;) {
        const int fd = accept(listener, NULL, NULL);

        if (fd >= 0)
            serve(fd);
    }
}
