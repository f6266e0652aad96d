/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - numbered tasks on POSIX threads; how many CPUs we may use. */
#include "lib/exec/pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"

#define MAX_DEFAULT_THREADS 16

struct pool {
    dcpk_task *task;
    void *context;
    uint64_t n_tasks;
    atomic_uint_fast64_t next;
    atomic_bool stopped;
    pthread_mutex_t mutex; /* of the two below */
    uint64_t failed_task;
    struct dcpk_error *err;
};

struct worker {
    struct pool *pool;
    int number;
    pthread_t thread;
};

/* Keeps the failure of the lowest task: that message depends least on timing. */
static void keep_failure(struct pool *pool, uint64_t task, const struct dcpk_error *err)
{
    atomic_store(&pool->stopped, true);
    pthread_mutex_lock(&pool->mutex);
    if (pool->err->status == DCPK_OK || task < pool->failed_task) {
        pool->failed_task = task;
        *pool->err = *err;
    }
    pthread_mutex_unlock(&pool->mutex);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct pool *pool = worker->pool;

    while (!atomic_load_explicit(&pool->stopped, memory_order_relaxed)) {
        const uint64_t i = atomic_fetch_add(&pool->next, 1);
        struct dcpk_error err = {.status = DCPK_OK};

        if (i >= pool->n_tasks)
            break;
        if (pool->task(pool->context, worker->number, i, &err) != DCPK_OK)
            keep_failure(pool, i, &err);
    }
    return NULL;
}

/* Start workers 1 .. n_threads - 1; returns how many run. Fewer than wanted is slower, not an
 * error. */
static int start_threads(struct worker *workers, int n_threads)
{
    sigset_t all, old;
    int n_started = 0;

    sigfillset(&all); /* threads inherit it: signals go to the caller's thread */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int i = 1; i < n_threads; i++) {
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            break;
        n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return n_started;
}

dcpk_status dcpk_pool_run(int n_threads, uint64_t n_tasks, dcpk_task *task, void *context,
                          struct dcpk_error *err)
{
    const int n = (int)dcpk_min_u64((uint64_t)n_threads, n_tasks);
    struct pool pool = {.task = task, .context = context, .n_tasks = n_tasks, .err = err};
    struct worker *workers;
    int n_started;

    if (n_tasks == 0)
        return DCPK_OK;
    workers = dcpk_alloc_array((size_t)n, sizeof *workers, err);
    if (workers == NULL)
        return err->status;
    err->status = DCPK_OK;
    atomic_init(&pool.next, 0);
    atomic_init(&pool.stopped, false);
    pthread_mutex_init(&pool.mutex, NULL);
    for (int i = 0; i < n; i++)
        workers[i] = (struct worker){.pool = &pool, .number = i};
    n_started = start_threads(workers, n);
    work(&workers[0]);
    for (int i = 1; i <= n_started; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_mutex_destroy(&pool.mutex);
    dcpk_free(workers);
    return err->status;
}

/* ---- in the background ---- */

struct dcpk_background {
    dcpk_background_task *task;
    void *context;
    pthread_t thread;
    struct dcpk_error err; /* the thread's until it has ended */
};

static void *pool_work_beside(void *argument)
{
    struct dcpk_background *background = argument;

    (void)background->task(background->context, &background->err);
    return NULL;
}

dcpk_status dcpk_background_start(dcpk_background_task *task, void *context,
                                  struct dcpk_background **background, struct dcpk_error *err)
{
    struct dcpk_background *made = dcpk_alloc(sizeof *made, err);
    sigset_t all, old;
    int failed;

    if (made == NULL)
        return err->status;
    *made = (struct dcpk_background){.task = task, .context = context, .err = DCPK_ERROR_INIT};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    failed = pthread_create(&made->thread, NULL, pool_work_beside, made);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed != 0) {
        dcpk_free(made);
        return dcpk_fail(err, DCPK_EIO, "no thread could be started: %s", strerror(failed));
    }
    *background = made;
    return DCPK_OK;
}

dcpk_status dcpk_background_finish(struct dcpk_background *background, struct dcpk_error *err)
{
    dcpk_status st;

    if (background == NULL)
        return DCPK_OK;
    pthread_join(background->thread, NULL);
    st = background->err.status;
    if (st != DCPK_OK)
        *err = background->err;
    dcpk_free(background);
    return st;
}

/* ---- CPUs ---- */

/* The first line of a small file of the system without its newline; false when it cannot be
 * read. */
static bool read_line(const char *path, char *line, size_t n)
{
    FILE *file = fopen(path, "re");
    const bool is_read = file != NULL && fgets(line, (int)n, file) != NULL;

    if (file != NULL)
        fclose(file);
    if (is_read)
        line[strcspn(line, "\n")] = '\0';
    return is_read;
}

/* "200000 100000" or "max 100000" (cgroup v2 cpu.max), "-1 100000" (v1): whole CPUs, rounded up; 0:
 * no limit. */
static int quota_cpus(const char *text)
{
    char *rest;
    long long quota, period;

    quota = strtoll(text, &rest, 10);
    if (rest == text || quota <= 0)
        return 0;
    period = strtoll(rest, NULL, 10);
    if (period <= 0 || (quota - 1) / period >= MAX_DEFAULT_THREADS)
        return 0;
    return (int)((quota - 1) / period) + 1;
}

/* The quota that one control group sets; version 1 keeps it in two files. */
static int group_cpus(const char *mount, const char *group)
{
    char path[1400], text[200];
    size_t n;

    snprintf(path, sizeof path, "%s%s/cpu.max", mount, group);
    if (read_line(path, text, sizeof text))
        return quota_cpus(text);
    snprintf(path, sizeof path, "%s%s/cpu.cfs_quota_us", mount, group);
    if (!read_line(path, text, sizeof text / 2))
        return 0;
    n = strlen(text);
    text[n++] = ' ';
    snprintf(path, sizeof path, "%s%s/cpu.cfs_period_us", mount, group);
    if (!read_line(path, text + n, sizeof text - n))
        return 0;
    return quota_cpus(text);
}

/* The smallest quota of a group and those around it; 0: none. Cuts `group` up. */
static int smallest_quota(const char *mount, char *group)
{
    int least = 0;

    for (;;) {
        const int n = group_cpus(mount, group);
        char *slash = strrchr(group, '/');

        if (n > 0 && (least == 0 || n < least))
            least = n;
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup: "0::/path" (version 2), "4:cpu,cpuacct:/path" (version 1); man 7
 * cgroups. */
static int cgroup_cpus(void)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[1200];
    int least = 0;

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *controllers = strchr(line, ':');
        char *group;
        int n;

        if (controllers == NULL || (group = strchr(controllers + 1, ':')) == NULL)
            continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (controllers[1] == '\0')
            n = smallest_quota("/sys/fs/cgroup", group);
        else if (strstr(controllers, "cpu") != NULL && strstr(controllers, "cpuset") == NULL)
            n = smallest_quota("/sys/fs/cgroup/cpu", group);
        else
            continue;
        if (n > 0 && (least == 0 || n < least))
            least = n;
    }
    if (file != NULL)
        fclose(file);
    return least;
}

int dcpk_pool_default_threads(void)
{
    const int quota = cgroup_cpus();
    cpu_set_t allowed;
    int n = 1;

    CPU_ZERO(&allowed);
    /* EINVAL: more CPUs than a cpu_set_t holds; then there are enough of them. */
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        n = CPU_COUNT(&allowed);
    else if (errno == EINVAL)
        n = MAX_DEFAULT_THREADS;
    if (quota > 0 && quota < n)
        n = quota;
    if (n > MAX_DEFAULT_THREADS)
        n = MAX_DEFAULT_THREADS;
    return n < 1 ? 1 : n;
}
