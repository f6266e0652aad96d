/* SPDX-License-Identifier: Apache-2.0 */
/* mangle.c - damages a file in a given way, for the tests that feed dcpkit bad input. */
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES (64u << 20)
#define ZIP_END        22u
#define ZIP_CENTRAL    46u
#define ZIP_LOCAL      30u
#define FRAME_HEAD     11 /* PROTO 4, FRAME and its 8-byte length: how pickles of protocol 4 begin */

struct text {
    uint8_t *data;
    size_t n_bytes;
};

static void die(const char *what, const char *name)
{
    fprintf(stderr, "mangle: %s: %s\n", name, what);
    exit(2);
}

static struct text text_new(size_t capacity)
{
    struct text t = {malloc(capacity > 0 ? capacity : 1), 0};

    if (t.data == NULL)
        die("out of memory", "malloc");
    return t;
}

static struct text load(const char *path)
{
    struct text t = text_new(MAX_FILE_BYTES);
    FILE *file = fopen(path, "rb");

    if (file == NULL)
        die(strerror(errno), path);
    t.n_bytes = fread(t.data, 1, MAX_FILE_BYTES, file);
    if (ferror(file) || !feof(file))
        die("cannot be read whole", path);
    fclose(file);
    return t;
}

static void save(const char *path, struct text t)
{
    FILE *file = fopen(path, "wb");

    if (file == NULL || fwrite(t.data, 1, t.n_bytes, file) != t.n_bytes || fclose(file) != 0)
        die(strerror(errno), path);
    free(t.data);
}

/* A place in the file; a negative one counts from the end. */
static size_t parse_place(const char *argument, size_t n_bytes)
{
    char *end;
    const intmax_t at = strtoimax(argument, &end, 0);

    if (*end != '\0' || at > (intmax_t)n_bytes || at < -(intmax_t)n_bytes)
        die("no such place in the file", argument);
    return at < 0 ? n_bytes - (size_t)-at : (size_t)at;
}

/* The bytes of an argument in which \xNN stands for one byte. */
static struct text parse_bytes(const char *argument)
{
    struct text t = text_new(strlen(argument));

    for (const char *p = argument; *p != '\0';) {
        if (p[0] == '\\' && p[1] == 'x' && p[2] != '\0' && p[3] != '\0') {
            const char digits[3] = {p[2], p[3], '\0'};

            t.data[t.n_bytes++] = (uint8_t)strtoul(digits, NULL, 16);
            p += 4;
        } else {
            t.data[t.n_bytes++] = (uint8_t)*p++;
        }
    }
    return t;
}

/* A pickle that is one frame keeps its frame's length right, so that only what was asked for is
 * wrong. */
static void fix_frame(struct text *t, size_t old_bytes)
{
    uint64_t frame_bytes = 0;

    if (old_bytes < FRAME_HEAD || memcmp(t->data, "\x80\x04\x95", 3) != 0)
        return;
    for (int i = 7; i >= 0; i--)
        frame_bytes = frame_bytes << 8 | t->data[3 + i];
    if (frame_bytes != old_bytes - FRAME_HEAD)
        return;
    frame_bytes = t->n_bytes - FRAME_HEAD;
    for (int i = 0; i < 8; i++)
        t->data[3 + i] = (uint8_t)(frame_bytes >> 8 * i);
}

static void flip(struct text *t, const char *place)
{
    const size_t at = parse_place(place, t->n_bytes);

    if (at == t->n_bytes)
        die("no such place in the file", place);
    t->data[at] ^= 0xff;
}

/* Replace the n-th occurrence (counted from 1), or all of them when nth is 0. */
static struct text replace(struct text t, struct text old, struct text new, size_t nth)
{
    struct text out = text_new(t.n_bytes * (new.n_bytes + 1));
    size_t n_found = 0, n_done = 0;

    for (size_t i = 0; i < t.n_bytes;) {
        const int is_here = old.n_bytes > 0 && t.n_bytes - i >= old.n_bytes &&
                            memcmp(t.data + i, old.data, old.n_bytes) == 0;

        n_found += (size_t)is_here;
        if (is_here && (nth == 0 || n_found == nth)) {
            memcpy(out.data + out.n_bytes, new.data, new.n_bytes);
            out.n_bytes += new.n_bytes;
            i += old.n_bytes;
            n_done++;
        } else {
            out.data[out.n_bytes++] = t.data[i++];
        }
    }
    if (n_done == 0)
        die("the bytes to replace are not there", "replace");
    fix_frame(&out, t.n_bytes);
    free(t.data);
    free(old.data);
    free(new.data);
    return out;
}

/* Little-endian. */
static uint32_t get(const struct text *t, size_t at, size_t n)
{
    uint32_t v = 0;

    while (n-- > 0)
        v = v << 8 | t->data[at + n];
    return v;
}

static void put_u32(struct text *t, size_t at, uint32_t v)
{
    for (size_t i = 0; i < 4; i++)
        t->data[at + i] = (uint8_t)(v >> 8 * i);
}

static uint32_t crc32(const uint8_t *data, size_t n)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < n; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/*
 * The checksum of one record: in the directory's entry, and behind the data where it is said again.
 */
static void seal_record(struct text *t, size_t archive, size_t entry)
{
    const size_t local = archive + get(t, entry + 42, 4), n = get(t, entry + 24, 4);
    size_t data = local + ZIP_LOCAL;
    uint32_t crc;

    if (local >= t->n_bytes - ZIP_LOCAL)
        die("no record there", "seal");
    data += get(t, local + 26, 2) + get(t, local + 28, 2);
    if (data > t->n_bytes || n > t->n_bytes - data)
        die("a record passes the end", "seal");
    crc = crc32(t->data + data, n);
    put_u32(t, entry + 16, crc);
    if (t->n_bytes - data - n >= 8 && memcmp(t->data + data + n, "PK\7\10", 4) == 0)
        put_u32(t, data + n + 4, crc);
}

/* Right checksums for all records of the torch.save archives that the file consists of. */
static void seal(struct text *t)
{
    size_t archive = 0;

    for (size_t end = 0; end + ZIP_END <= t->n_bytes; end++) {
        size_t entry = archive + get(t, end + 16, 4), n = get(t, end + 10, 2);

        if (memcmp(t->data + end, "PK\5\6", 4) != 0 || entry > end)
            continue;
        for (; n > 0 && entry + ZIP_CENTRAL <= end; n--) {
            seal_record(t, archive, entry);
            entry += ZIP_CENTRAL + get(t, entry + 28, 2) + get(t, entry + 30, 2);
        }
        archive = end + ZIP_END;
    }
}

int main(int argc, char **argv)
{
    struct text t;

    if (argc == 4 && strcmp(argv[1], "truncate") == 0) {
        t = load(argv[2]);
        t.n_bytes = parse_place(argv[3], t.n_bytes);
    } else if (argc == 4 && strcmp(argv[1], "flip") == 0) {
        t = load(argv[2]);
        flip(&t, argv[3]);
    } else if (argc == 3 && strcmp(argv[1], "seal") == 0) {
        t = load(argv[2]);
        seal(&t);
    } else if ((argc == 5 || argc == 6) && strcmp(argv[1], "replace") == 0) {
        t = replace(load(argv[2]), parse_bytes(argv[3]), parse_bytes(argv[4]),
                    argc == 6 ? (size_t)strtoul(argv[5], NULL, 10) : 0);
    } else {
        fprintf(stderr, "usage: mangle truncate FILE N_BYTES\n"
                        "       mangle flip FILE PLACE\n"
                        "       mangle replace FILE OLD NEW [NTH]\n"
                        "       mangle seal FILE: right checksums in torch.save archives\n"
                        "N_BYTES, PLACE: negative ones count from the end; OLD, NEW: with \\xNN\n");
        return 2;
    }
    save(argv[2], t);
    return 0;
}
