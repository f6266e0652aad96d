/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_doctor.c - dcpkit doctor: is this machine fit for training, and what to do where it is not.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "lib/base/order.h"
#include "lib/knobs/knobs.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"

#define NAME "doctor"

#define OLDEST_CUDA   12000
#define OLDEST_NCCL   21400
#define MAX_FINDINGS  (DCPK_MAX_GPUS + 32)
#define SMALL_SHARED  ((uint64_t)64 << 20) /* what containers have by default */
#define SHARED_WANTED ((uint64_t)1 << 30)
#define FREE_WANTED   ((uint64_t)10 << 30)

enum state { OK, NOTE, WRONG };
static const char *const state_names[] = {"ok", "note", "wrong"};

struct finding {
    enum state state;
    char subject[80];
    char found[512];
    const char *remedy; /* static; NULL: there is nothing to do */
};

struct doctor {
    bool as_json;
    struct finding list[MAX_FINDINGS];
    size_t n;
    int n_gpus, nccl;
};

static void put(struct doctor *d, enum state state, const char *subject, const char *remedy,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));

static void put(struct doctor *d, enum state state, const char *subject, const char *remedy,
                const char *fmt, ...)
{
    struct finding *f = &d->list[d->n];
    va_list args;

    if (d->n == MAX_FINDINGS)
        return;
    d->n++;
    f->state = state;
    if (state != OK)
        f->remedy = remedy;
    snprintf(f->subject, sizeof f->subject, "%s", subject);
    va_start(args, fmt);
    vsnprintf(f->found, sizeof f->found, fmt, args);
    va_end(args);
}

static enum state unless(bool is_good, enum state state)
{
    if (is_good)
        return OK;
    return state;
}

/* The state of an amount, of which less than `least` does not do. */
static enum state amount_state(uint64_t amount, uint64_t least, uint64_t wanted)
{
    if (amount < least)
        return WRONG;
    return unless(amount >= wanted, NOTE);
}

/* ---- GPUs and libraries ---- */

static void look_at_links(struct doctor *d, const struct dcpk_gpus *gpus)
{
    const struct dcpk_gpu *first = &gpus->list[0];
    int n_other = 0;

    for (int i = 1; i < gpus->n; i++)
        n_other +=
            strcmp(gpus->list[i].name, first->name) == 0 && gpus->list[i].n_links != first->n_links;
    put(d, unless(n_other == 0, WRONG), "NVLink",
        "'nvidia-smi nvlink --status' names the links that are down",
        "GPUs of a kind with fewer or more links than GPU 0: %d", n_other);
    put(d, unless(gpus->n_far == 0, NOTE), "GPU pairs",
        "ranks of tensor and expert parallelism belong on GPUs that NVLink joins: 'nvidia-smi topo "
        "-m' shows which",
        "%d by NVLink, %d below one PCIe bridge, %d across processors", gpus->n_nvlink,
        gpus->n_near, gpus->n_far);
}

static void look_at_gpus(struct doctor *d)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char subject[32], total[DCPK_SIZE_TEXT_BYTES], unused[DCPK_SIZE_TEXT_BYTES];
    struct dcpk_gpus gpus;

    if (dcpk_survey_gpus(&gpus, &err) != DCPK_OK) {
        put(d, NOTE, "GPUs", "training runs on the processor here", "%s", err.text);
        return;
    }
    d->n_gpus = gpus.n;
    put(d, unless(gpus.cuda_version >= OLDEST_CUDA, WRONG), "driver",
        "install a driver that knows CUDA 12.0, or a later one", "%s, CUDA %d.%d", gpus.driver,
        gpus.cuda_version / 1000, gpus.cuda_version % 1000 / 10);
    for (int i = 0; i < gpus.n; i++) {
        const struct dcpk_gpu *gpu = &gpus.list[i];

        snprintf(subject, sizeof subject, "GPU %d", i);
        put(d, unless(gpu->n_free_bytes >= gpu->n_bytes / 10 * 9, NOTE), subject,
            "another process uses it: 'nvidia-smi' names it", "%s, %s, free: %s, NVLinks: %d",
            gpu->name, dcpk_cli_short_size(gpu->n_bytes, total),
            dcpk_cli_short_size(gpu->n_free_bytes, unused), gpu->n_links);
    }
    if (gpus.n == 0)
        put(d, NOTE, "GPUs", "ask for some (Slurm's --gres, docker's --gpus)",
            "the driver shows none to this process");
    if (gpus.n > 1)
        look_at_links(d, &gpus);
}

static void look_at_libraries(struct doctor *d)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const bool has_nccl = dcpk_survey_nccl(&d->nccl, &err) == DCPK_OK;
    enum state lacking = NOTE;
    char version[128];

    if (d->n_gpus > 1)
        lacking = WRONG;
    if (has_nccl)
        snprintf(err.text, sizeof err.text, "%d.%d.%d", d->nccl / 10000, d->nccl / 100 % 100,
                 d->nccl % 100);
    put(d, unless(has_nccl && d->nccl >= OLDEST_NCCL, lacking), "NCCL",
        "several GPUs need 2.14 or later: install libnccl2, or put its folder into LD_LIBRARY_PATH",
        "%s", err.text);
    for (size_t i = 0; dcpk_transports[i] != NULL; i++) {
        dcpk_error_clear(&err);
        if (dcpk_transports[i]->find(version, sizeof version, &err) == DCPK_OK)
            put(d, OK, "MPI", NULL, "%s", version);
        else
            put(d, NOTE, "MPI", "several ranks need it: install openmpi-bin, or load its module",
                "%s", err.text);
    }
}

/* ---- limits ---- */

static const struct {
    const char *name;
    __rlimit_resource_t resource;
    bool is_bytes;
    uint64_t least, wanted;
    const char *remedy;
} limits[] = {
    {"open files", RLIMIT_NOFILE, false, 1024, 4096,
     "ulimit -n 65536; LimitNOFILE= of a service, nofile in /etc/security/limits.conf"},
    {"locked memory", RLIMIT_MEMLOCK, true, (uint64_t)64 << 10, (uint64_t)1 << 30,
     "ulimit -l unlimited; LimitMEMLOCK=infinity of a service, memlock in "
     "/etc/security/limits.conf: InfiniBand locks what it sends"},
    {"size of a file", RLIMIT_FSIZE, true, (uint64_t)8 << 30, (uint64_t)8 << 30,
     "ulimit -f unlimited: a file of a checkpoint has up to 8 GiB"},
    {"address space", RLIMIT_AS, true, (uint64_t)16 << 30, (uint64_t)1 << 40,
     "ulimit -v unlimited: a process maps all memory of its GPU"},
};

static void look_at_limits(struct doctor *d)
{
    char text[DCPK_SIZE_TEXT_BYTES];
    struct rlimit limit;

    for (size_t i = 0; i < DCPK_COUNT(limits); i++) {
        if (getrlimit(limits[i].resource, &limit) != 0)
            continue;
        snprintf(text, sizeof text, "%ju", (uintmax_t)limit.rlim_cur);
        if (limits[i].is_bytes)
            dcpk_cli_short_size(limit.rlim_cur, text);
        if (limit.rlim_cur == RLIM_INFINITY)
            put(d, OK, limits[i].name, NULL, "unlimited");
        else
            put(d, amount_state(limit.rlim_cur, limits[i].least, limits[i].wanted), limits[i].name,
                limits[i].remedy, "%s at most", text);
    }
}

/* ---- variables of the environment ---- */

/* A value that some runs refuse, or a setting among several. */
static bool is_refused(const struct dcpk_variable *v, const char *value)
{
    if (v->bad == NULL)
        return false;
    return strcmp(value, v->bad) == 0 || (strchr(v->bad, ':') != NULL && strstr(value, v->bad));
}

/* Values that no run refuses, each alone or one of several with commas; others: any. */
static const struct {
    const char *name, *words;
} wanted_values[] = {
    {"CUDA_DEVICE_MAX_CONNECTIONS", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 "
                                    "24 25 26 27 28 29 30 31 32"},
    {"NCCL_ALGO", "Ring CollnetDirect CollnetChain ^NVLS"},
    {"NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0"},
    {"CUBLAS_WORKSPACE_CONFIG", ":4096:8 :16:8"},
};

static bool is_wanted(const struct dcpk_variable *v, const char *value)
{
    size_t i = 0, n;

    while (i < DCPK_COUNT(wanted_values) && strcmp(wanted_values[i].name, v->name) != 0)
        i++;
    if (i == DCPK_COUNT(wanted_values))
        return true;
    for (; dcpk_option_has_word(wanted_values[i].words, value, n = strcspn(value, ","));
         value += n + 1)
        if (value[n] == '\0')
            return true;
    return false;
}

static void look_at_environment(struct doctor *d)
{
    for (size_t i = 0; i < dcpk_n_variables; i++) {
        const struct dcpk_variable *v = &dcpk_variables[i];
        const char *value = getenv(v->name);

        if (value == NULL)
            put(d, OK, v->name, NULL, "not set; should be: %s", v->wanted);
        else if (is_refused(v, value))
            put(d, NOTE, v->name, "unset it for runs that refuse it", "'%s'; should be: %s", value,
                v->wanted);
        else
            put(d, unless(is_wanted(v, value), NOTE), v->name, "set it so, or unset it",
                "'%s'; should be: %s", value, v->wanted);
    }
}

/* ---- file systems ---- */

static const struct {
    unsigned long magic; /* statfs(2) */
    const char *name;
    const char *remedy; /* NULL: it is good for checkpoints */
} file_systems[] = {
    {0xef53, "ext4", NULL},
    {0x58465342, "XFS", NULL},
    {0x9123683e, "Btrfs", NULL},
    {0x2fc12fc1, "ZFS", NULL},
    {0x0bd00bd0, "Lustre", NULL},
    {0x47504653, "GPFS", NULL},
    {0x19830326, "BeeGFS", NULL},
    {0x00c36400, "CephFS", NULL},
    {0x6969, "NFS",
     "other nodes see a new file late, and one server takes all: prefer a parallel "
     "file system for saves of many nodes"},
    {0x01021994, "tmpfs", "it is memory: what it has is gone when the machine stops"},
    {0x794c7630, "overlay", "it is a layer of a container, and goes with it: mount a volume"},
    {0x65735546, "FUSE",
     "its program decides what is kept: check that a file that was written is "
     "there after the machine stops"},
};

static void look_at_folder(struct doctor *d, const char *folder, const struct statfs *fs)
{
    const uint64_t n_free = (uint64_t)fs->f_bavail * (uint64_t)fs->f_bsize;
    const bool has_numbers = fs->f_files > 0; /* of files: some systems have no end of them */
    char text[DCPK_SIZE_TEXT_BYTES];
    size_t i = 0;

    while (i < DCPK_COUNT(file_systems) &&
           file_systems[i].magic != (unsigned long)fs->f_type % (1ul << 32))
        i++;
    if (i == DCPK_COUNT(file_systems))
        put(d, NOTE, "file system", "dcpkit does not know it", "type 0x%lx",
            (unsigned long)fs->f_type);
    else
        put(d, unless(file_systems[i].remedy == NULL, NOTE), "file system", file_systems[i].remedy,
            "%s", file_systems[i].name);
    if (access(folder, W_OK | X_OK) != 0)
        put(d, WRONG, "writing", "give this user the right to write there, or mount it for writing",
            "%s", strerror(errno));
    put(d, amount_state(n_free, 1, FREE_WANTED), "free space",
        "delete old iterations or choose another folder; --dry-run of convert and --explain-memory "
        "of train say how much is needed",
        "%s", dcpk_cli_short_size(n_free, text));
    if (has_numbers && fs->f_ffree == 0)
        put(d, WRONG, "free files", "delete files: the file system has no room for one more",
            "none");
}

static void look_at_shared_memory(struct doctor *d)
{
    const char *remedy = "start the container with --shm-size=8g or --ipc=host: NCCL, MPI and data "
                         "loaders share memory there";
    char text[DCPK_SIZE_TEXT_BYTES];
    struct statvfs there;
    uint64_t n_bytes, least = 1;

    if (statvfs("/dev/shm", &there) != 0) {
        put(d, WRONG, "/dev/shm", "mount a tmpfs there", "%s", strerror(errno));
        return;
    }
    n_bytes = (uint64_t)there.f_blocks * (uint64_t)there.f_frsize;
    if (d->n_gpus > 1)
        least = SMALL_SHARED + 1;
    put(d, amount_state(n_bytes, least, SHARED_WANTED), "/dev/shm", remedy, "%s",
        dcpk_cli_short_size(n_bytes, text));
}

/* ---- the answer ---- */

static void fill_findings(const void *context, struct dcpk_doc_rows *rows)
{
    static const unsigned tones[] = {DCPK_DOC_GOOD, DCPK_DOC_WARN, DCPK_DOC_BAD};
    const struct doctor *d = context;
    char text[1024];

    for (size_t i = 0; i < d->n; i++) {
        const struct finding *f = &d->list[i];

        snprintf(text, sizeof text, "%s", f->found);
        if (f->remedy != NULL)
            snprintf(text, sizeof text, "%s: %s", f->found, f->remedy);
        DCPK_DOC_PUT(
            rows,
            {"state", "state", .fact = dcpk_fact_text(state_names[f->state]),
             .flags = tones[f->state], .width = 5},
            {"subject", "subject", .fact = dcpk_fact_text(f->subject), .flags = DCPK_DOC_MEASURED},
            {.title = "found", .fact = dcpk_fact_text(text)},
            DCPK_MEMBER("found", dcpk_fact_text(f->found)),
            DCPK_MEMBER("remedy", dcpk_fact_text(f->remedy)));
    }
}

static int doctor_report(const struct doctor *d, struct dcpk_error *err)
{
    static const struct dcpk_doc_style style = {.label_columns = 12};
    const struct dcpk_doc_table table = {.fill = fill_findings, .context = d};
    const struct dcpk_print_options way = {.as_json = d->as_json};
    size_t n_wrong = 0;
    struct dcpk_doc doc;

    for (size_t i = 0; i < d->n; i++)
        n_wrong += d->list[i].state == WRONG;
    dcpk_doc_init(&doc, NAME, &style);
    dcpk_doc_table(&doc, "findings", &table);
    dcpk_doc_set_count(&doc, "n_wrong", n_wrong);
    dcpk_doc_set_flag(&doc, "ok", n_wrong == 0);
    dcpk_doc_set_count(&doc, "version", 1);
    (void)dcpk_print_doc(&doc, &way, err);
    if (n_wrong > 0)
        return DCPK_EXIT_NO;
    return DCPK_EXIT_OK;
}

#define DCPK_OPT_STRUCT struct doctor
static const struct dcpk_option option_rows[] = {DCPK_OPT_JSON(as_json), DCPK_OPT_END};

static int doctor_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    struct doctor *d = values;
    struct statfs fs;
    struct stat there;

    if (args->n > 0 && (statfs(args->words[0], &fs) != 0 || stat(args->words[0], &there) != 0)) {
        dcpk_fail_errno(err, errno, "looking at '%s'", args->words[0]);
        return DCPK_EXIT_USAGE;
    }
    if (args->n > 0 && !S_ISDIR(there.st_mode)) {
        dcpk_fail(err, DCPK_EUSAGE, "'%s' is not a folder: give the folder for checkpoints",
                  args->words[0]);
        return DCPK_EXIT_USAGE;
    }
    look_at_gpus(d);
    look_at_libraries(d);
    look_at_limits(d);
    look_at_shared_memory(d);
    look_at_environment(d);
    if (args->n > 0)
        look_at_folder(d, args->words[0], &fs);
    return doctor_report(d, err);
}

static struct doctor values;
const struct dcpk_cli dcpk_cmd_doctor = {
    .name = NAME,
    .usage = "[options] [FOLDER]",
    .summary = "Check this machine for training: GPUs and how they are joined, driver, NCCL, "
               "MPI, limits, variables of the environment, and the file system of FOLDER; exit "
               "0: nothing is wrong, 1: something is wrong, and the report has the remedy.",
    .options = option_rows,
    .values = &values,
    .example = "dcpkit doctor sample-data",
    .n_args = {0, 1},
    .paths = DCPK_CLI_ASKS_DRIVERS,
    .run = doctor_main,
};
