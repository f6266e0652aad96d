/* SPDX-License-Identifier: Apache-2.0 */
/* disk_model.c - replays a log of changes and syncs, and draws what a power failure leaves. */
#include "tests/fault/disk_model.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/fault/disk_log.h"
#include "tests/random.h"

#define BLOCK_BYTES 512u /* what a disk writes whole or not at all */

struct bytes {
    uint8_t *data;
    size_t n;
};

/* A change of names in one folder, all at once. */
struct change {
    int n;
    char *names[2];
    size_t nodes[2]; /* that the names lead to then; NOTHING: to none */
};
#define NOTHING SIZE_MAX

struct changes {
    struct change *list;
    size_t n;
};

struct node {
    uint64_t id; /* 0: another one has taken the number over */
    bool is_folder;
    struct bytes now, kept; /* of a file; kept: on disk for certain */
    struct changes history; /* of a folder, from empty on */
    size_t n_kept;          /* of history, on disk for certain */
};

struct disk {
    struct node *nodes; /* the first is the root */
    size_t n;
};

static void *grown(void *old, size_t n_bytes)
{
    void *got = realloc(old, n_bytes == 0 ? 1 : n_bytes);

    CHECK(got != NULL, "memory");
    return got;
}

static void resize(struct bytes *b, size_t n)
{
    b->data = grown(b->data, n);
    if (n > b->n)
        memset(b->data + b->n, 0, n - b->n);
    b->n = n;
}

static void sync_node(struct node *node)
{
    node->n_kept = node->history.n;
    resize(&node->kept, node->now.n);
    if (node->now.n > 0)
        memcpy(node->kept.data, node->now.data, node->now.n);
}

static size_t find_node(const struct disk *disk, uint64_t id)
{
    for (size_t i = 0; i < disk->n; i++)
        if (id != 0 && disk->nodes[i].id == id)
            return i;
    return NOTHING;
}

static size_t add_node(struct disk *disk, uint64_t id, bool is_folder)
{
    const size_t old = find_node(disk, id);

    if (old != NOTHING)
        disk->nodes[old].id = 0;
    disk->nodes = grown(disk->nodes, (disk->n + 1) * sizeof *disk->nodes);
    disk->nodes[disk->n] = (struct node){.id = id, .is_folder = is_folder};
    return disk->n++;
}

static void add_change(struct disk *disk, size_t folder, struct change change)
{
    struct changes *c = &disk->nodes[folder].history;

    c->list = grown(c->list, (c->n + 1) * sizeof *c->list);
    c->list[c->n++] = change;
}

/* What a name leads to after the changes that are marked, or all of them: NULL. */
static size_t look_up(const struct changes *changes, const bool *marked, const char *name)
{
    for (size_t i = changes->n; i-- > 0;)
        for (int k = 0; k < changes->list[i].n; k++)
            if ((marked == NULL || marked[i]) && strcmp(changes->list[i].names[k], name) == 0)
                return changes->list[i].nodes[k];
    return NOTHING;
}

/* ---- what stands there ---- */

static void scan_file(struct node *node, const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat info;

    CHECK(file != NULL && fstat(fileno(file), &info) == 0, path);
    resize(&node->now, (size_t)info.st_size);
    CHECK(fread(node->now.data, 1, node->now.n, file) == node->now.n, path);
    fclose(file);
}

static size_t scan_node(struct disk *disk, const char *path)
{
    struct dirent **entries;
    struct stat info;
    size_t node;
    int n;

    CHECK(lstat(path, &info) == 0, path);
    node = add_node(disk, info.st_ino, S_ISDIR(info.st_mode));
    n = S_ISDIR(info.st_mode) ? scandir(path, &entries, NULL, alphasort) : 0;
    if (!S_ISDIR(info.st_mode))
        scan_file(&disk->nodes[node], path);
    for (int i = 0; i < n; i++) {
        struct change change = {.n = 1, .names = {strdup(entries[i]->d_name)}};
        char inner[8192];

        snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        if (strcmp(entries[i]->d_name, ".") != 0 && strcmp(entries[i]->d_name, "..") != 0) {
            change.nodes[0] = scan_node(disk, inner);
            add_change(disk, node, change);
        } else {
            free(change.names[0]);
        }
        free(entries[i]);
    }
    if (S_ISDIR(info.st_mode))
        free(entries);
    sync_node(&disk->nodes[node]);
    return node;
}

struct disk *disk_scan(const char *root)
{
    struct disk *disk = calloc(1, sizeof *disk);

    CHECK(disk != NULL, root);
    (void)scan_node(disk, root);
    return disk;
}

void disk_know(struct disk *disk, const char *elsewhere)
{
    (void)scan_node(disk, elsewhere);
}

void disk_free(struct disk *disk)
{
    for (size_t i = 0; i < disk->n; i++) {
        struct node *node = &disk->nodes[i];

        for (size_t c = 0; c < node->history.n; c++)
            for (int k = 0; k < node->history.list[c].n; k++)
                free(node->history.list[c].names[k]);
        free(node->history.list);
        free(node->now.data);
        free(node->kept.data);
    }
    free(disk->nodes);
    free(disk);
}

/* ---- what was done ---- */

/* An entry of a log with what follows it. */
struct entry {
    struct disk_record record;
    char names[2][4096];
    uint8_t *data;
};

static bool read_entry(FILE *log, struct entry *e)
{
    e->data = NULL;
    if (fread(&e->record, sizeof e->record, 1, log) != 1)
        return false;
    for (int i = 0; i < 2; i++) {
        const size_t n = e->record.name_bytes[i];

        CHECK(n < sizeof e->names[i] && fread(e->names[i], 1, n, log) == n, "log");
        e->names[i][n] = '\0';
    }
    if (e->record.op == DISK_WRITE) {
        e->data = grown(NULL, e->record.n_bytes);
        CHECK(fread(e->data, 1, e->record.n_bytes, log) == e->record.n_bytes, "log");
    }
    return true;
}

static void replay_rename(struct disk *disk, const struct entry *e, size_t folder)
{
    const struct changes *history = &disk->nodes[folder].history;
    const size_t from = look_up(history, NULL, e->names[0]),
                 to = look_up(history, NULL, e->names[1]);
    struct change change = {.n = 2, .names = {strdup(e->names[0]), strdup(e->names[1])}};

    CHECK(e->record.folders[0] == e->record.folders[1], "a rename leaves its folder");
    change.nodes[0] = e->record.op == DISK_EXCHANGE ? to : NOTHING;
    change.nodes[1] = from;
    add_change(disk, folder, change);
}

static void replay_names(struct disk *disk, const struct entry *e)
{
    const size_t folder = find_node(disk, e->record.folders[0]);
    struct change change = {.n = 1};

    if (folder == NOTHING)
        return;
    if (e->record.op == DISK_RENAME || e->record.op == DISK_EXCHANGE) {
        replay_rename(disk, e, folder);
        return;
    }
    change.names[0] = strdup(e->names[0]);
    change.nodes[0] = NOTHING;
    if (e->record.op == DISK_LINK)
        change.nodes[0] = find_node(disk, e->record.node);
    else if (e->record.op != DISK_UNLINK)
        change.nodes[0] = add_node(disk, e->record.node, e->record.op == DISK_MAKE_FOLDER);
    add_change(disk, folder, change);
}

static void replay_bytes(struct disk *disk, const struct entry *e)
{
    const size_t at = find_node(disk, e->record.node);
    const size_t end = e->record.offset_bytes + e->record.n_bytes;
    struct node *node = at == NOTHING ? NULL : &disk->nodes[at];

    if (node == NULL || node->is_folder)
        return;
    if (e->record.op == DISK_SIZE || end > node->now.n)
        resize(&node->now, end);
    if (e->record.n_bytes > 0)
        memcpy(node->now.data + e->record.offset_bytes, e->data, e->record.n_bytes);
}

static void replay_sync(struct disk *disk, const struct entry *e)
{
    const size_t node = find_node(disk, e->record.node);

    for (size_t i = 0; i < disk->n && e->record.op == DISK_SYNC_ALL; i++)
        sync_node(&disk->nodes[i]);
    if (node != NOTHING)
        sync_node(&disk->nodes[node]);
}

static void replay_entry(struct disk *disk, const struct entry *e)
{
    switch ((enum disk_op)e->record.op) {
    case DISK_MAKE:
    case DISK_MAKE_FOLDER:
    case DISK_LINK:
    case DISK_UNLINK:
    case DISK_RENAME:
    case DISK_EXCHANGE:
        replay_names(disk, e);
        return;
    case DISK_WRITE:
    case DISK_SIZE:
        replay_bytes(disk, e);
        return;
    case DISK_SYNC:
    case DISK_SYNC_ALL:
        replay_sync(disk, e);
        return;
    }
    fail_msg("log: entry of kind %u", (unsigned)e->record.op);
}

void disk_replay(struct disk *disk, const char *log, size_t n)
{
    FILE *file = fopen(log, "rb");
    struct entry e;

    CHECK(file != NULL, log);
    for (size_t i = 0; i < n; i++) {
        CHECK(read_entry(file, &e), log);
        replay_entry(disk, &e);
        free(e.data);
    }
    fclose(file);
}

size_t disk_log_count(const char *log)
{
    FILE *file = fopen(log, "rb");
    struct entry e;
    size_t n = 0;

    CHECK(file != NULL, log);
    for (; read_entry(file, &e); n++)
        free(e.data);
    fclose(file);
    return n;
}

/* ---- what is left ---- */

struct crash {
    const struct disk *disk;
    enum disk_fate fate;
    uint64_t random;
};

/* True with this probability. */
static bool happens(struct crash *c, double probability)
{
    return (double)(random_next(&c->random) >> 11) / 9007199254740992.0 < probability;
}

/* How likely it is that what was not synced is there all the same, for one file or folder: often
 * that all of it is, or nothing. */
static double draw_luck(struct crash *c)
{
    if (c->fate == DISK_KEEPS || happens(c, 0.3))
        return 1;
    return happens(c, 0.5) ? 0 : happens(c, 0.5) ? 0.5 : 0.9;
}

static size_t draw_size(struct crash *c, const struct node *node)
{
    const double luck = draw_luck(c);

    if (c->fate == DISK_IS_HOLLOW)
        return node->now.n > node->kept.n ? node->now.n : node->kept.n;
    if (happens(c, luck))
        return node->now.n;
    return happens(c, luck) ? (node->now.n + node->kept.n) / 2 : node->kept.n;
}

static void crash_file(struct crash *c, const struct node *node, const char *path)
{
    const size_t n = draw_size(c, node);
    const double luck = c->fate == DISK_IS_HOLLOW ? 0 : draw_luck(c);
    uint8_t *block = calloc(1, n + BLOCK_BYTES);
    FILE *file = fopen(path, "wbx");

    CHECK(block != NULL && file != NULL, path);
    for (size_t at = 0; at < n; at += BLOCK_BYTES) {
        const struct bytes *b = happens(c, luck) ? &node->now : &node->kept;
        const size_t end = at + BLOCK_BYTES < b->n ? at + BLOCK_BYTES : b->n;

        if (end > at)
            memcpy(block + at, b->data + at, end - at);
    }
    CHECK(fwrite(block, 1, n, file) == n && fclose(file) == 0, path);
    free(block);
}

/* Do two changes share a name? */
static bool touch(const struct change *a, const struct change *b)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++)
            if (strcmp(a->names[i], b->names[k]) == 0)
                return true;
    return false;
}

/* Which changes of a folder's names took place. */
static bool *draw_changes(struct crash *c, const struct node *folder)
{
    const struct changes *history = &folder->history;
    bool *took_place = calloc(history->n + 1, sizeof *took_place);
    const double luck = c->fate == DISK_IS_HOLLOW ? 1 : draw_luck(c);

    CHECK(took_place != NULL, "memory");
    for (size_t i = 0; i < history->n; i++) {
        took_place[i] = i < folder->n_kept || happens(c, luck);
        for (size_t k = folder->n_kept; k < i && took_place[i]; k++)
            took_place[i] = took_place[k] || !touch(&history->list[k], &history->list[i]);
    }
    return took_place;
}

/* Is this the last change of the name, so that it is made once? */
static bool is_last(const struct changes *history, const bool *took_place, size_t change,
                    const char *name)
{
    for (size_t i = change + 1; i < history->n; i++)
        for (int k = 0; k < history->list[i].n; k++)
            if (took_place[i] && strcmp(history->list[i].names[k], name) == 0)
                return false;
    return true;
}

static void crash_folder(struct crash *c, size_t folder, const char *path)
{
    const struct changes *history = &c->disk->nodes[folder].history;
    bool *took_place = draw_changes(c, &c->disk->nodes[folder]);

    for (size_t i = 0; i < history->n; i++) {
        for (int k = 0; k < history->list[i].n && took_place[i]; k++) {
            const char *name = history->list[i].names[k];
            const size_t node = history->list[i].nodes[k];
            char inner[8192];

            if (node == NOTHING || !is_last(history, took_place, i, name))
                continue;
            snprintf(inner, sizeof inner, "%s/%s", path, name);
            if (!c->disk->nodes[node].is_folder) {
                crash_file(c, &c->disk->nodes[node], inner);
                continue;
            }
            CHECK(mkdir(inner, 0700) == 0, inner);
            crash_folder(c, node, inner);
        }
    }
    free(took_place);
}

void disk_crash(const struct disk *disk, enum disk_fate fate, uint64_t seed, const char *root)
{
    struct crash c = {.disk = disk, .fate = fate, .random = seed};

    crash_folder(&c, 0, root);
}
