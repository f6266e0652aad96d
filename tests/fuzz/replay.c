/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c - stands in for libFuzzer: runs a fuzz target once over each file of its arguments. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/bounded.h"

#define MAX_SEED_BYTES (16u << 20)

/* The name is libFuzzer's. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Run one file; a seed that cannot be read or is too large is a broken corpus. */
static void replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(MAX_SEED_BYTES);
    uint8_t *exact;
    size_t n_bytes;

    if (file == NULL || data == NULL) {
        perror(path);
        exit(1);
    }
    n_bytes = fread(data, 1, MAX_SEED_BYTES, file);
    if (ferror(file) || !feof(file)) {
        fprintf(stderr, "%s: cannot be read, or has %u bytes or more\n", path, MAX_SEED_BYTES);
        exit(1);
    }
    fclose(file);
    /* A block of the exact size, so that a sanitizer sees the first byte read past its end. */
    exact = malloc(n_bytes > 0 ? n_bytes : 1);
    if (exact == NULL) {
        perror(path);
        exit(1);
    }
    memcpy(exact, data, n_bytes);
    free(data);
    LLVMFuzzerTestOneInput(exact, n_bytes);
    free(exact);
}

/* Run all plain files of a folder; returns how many there were. */
static size_t replay_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    size_t n_files = 0;

    if (folder == NULL) {
        perror(path);
        exit(1);
    }
    while ((entry = readdir(folder)) != NULL) {
        char name[4096];
        struct stat info;
        const int n = snprintf(name, sizeof name, "%s/%s", path, entry->d_name);

        if (n < 0 || (size_t)n >= sizeof name || stat(name, &info) != 0) {
            perror(entry->d_name);
            exit(1);
        }
        if (S_ISREG(info.st_mode)) {
            replay_file(name);
            n_files++;
        }
    }
    closedir(folder);
    return n_files;
}

int main(int argc, char **argv)
{
    size_t n_files = 0;

    for (int i = 1; i < argc; i++) {
        struct stat info;

        if (stat(argv[i], &info) != 0) {
            perror(argv[i]);
            return 1;
        }
        if (S_ISDIR(info.st_mode)) {
            n_files += replay_folder(argv[i]);
        } else {
            replay_file(argv[i]);
            n_files++;
        }
    }
    printf("%zu inputs replayed, the costliest took %.3f MiB, %.3f s\n", n_files,
           (double)bounded_most().n_bytes / 1048576, bounded_most().seconds);
    return n_files > 0 ? 0 : 1; /* an empty corpus proves nothing */
}
