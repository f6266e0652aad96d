/* SPDX-License-Identifier: Apache-2.0 */
/* option.h - options of a program: one row for each, with its names, kind, range, default and
 * help. */
/*
 *   {kind SIZE, name "memory", argument "SIZE", at 24, least 16 MiB, help ...}
 *        |
 *        +--> dcpk_option_read: "64M" becomes 67108864 in the field 24 bytes into the values
 *
 * The options of a command (tools/options.h) and the knobs of a training run (lib/knobs/knobs.h)
 * are such rows. Parsing, ranges, near misses and help come from them; a row also has all that
 * shell completion and a manual page need: names, the kind of file or the words that it takes.
 */
#ifndef DCPK_LIB_BASE_OPTION_H
#define DCPK_LIB_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dcpk_option_kind {
    DCPK_OPTION_END,        /* after the last row of a table */
    DCPK_OPTION_GROUP,      /* not an option: `help` is the title of the rows after it */
    DCPK_OPTION_ROWS,       /* not an option: replaced by `rows`, of the struct in this field */
    DCPK_OPTION_FLAG,       /* bool */
    DCPK_OPTION_TEXT,       /* const char *, borrowed; the last one counts */
    DCPK_OPTION_WORD,       /* as TEXT, one of `words` */
    DCPK_OPTION_FILE,       /* as TEXT: the name of a file to read */
    DCPK_OPTION_OUT_FILE,   /* as FILE, to write */
    DCPK_OPTION_CHECKPOINT, /* as FILE: a folder or file with a checkpoint or args to read */
    DCPK_OPTION_OUT_FOLDER, /* as FILE: a folder that is made, or replaced */
    DCPK_OPTION_OUT_RUN,    /* as FILE: a run folder, or an iteration in one, to write */
    DCPK_OPTION_LIST,       /* struct dcpk_option_list, each time one more */
    DCPK_OPTION_COUNT,      /* int, least .. most */
    DCPK_OPTION_LENGTH,     /* int64_t, least .. most */
    DCPK_OPTION_NUMBER,     /* double, 0 or more, finite */
    DCPK_OPTION_SIZE,       /* uint64_t, bytes: "67108864", "64M", "64MiB", "1.5G" (1024^3) */
};

#define DCPK_OPTION_MAX_LIST 64
struct dcpk_option_list {
    const char *texts[DCPK_OPTION_MAX_LIST]; /* borrowed */
    size_t n;
};

/* A row; members that do not apply are 0. A table ends with a row of kind END. */
struct dcpk_option {
    enum dcpk_option_kind kind;
    char letter;      /* its short form */
    const char *name; /* without dashes before it */
    const char
        *others; /* more names, separated by blanks, "!" before one that means the opposite */
    const char *argument; /* "FILE", "N": how help names the value */
    size_t at_bytes;      /* of the field that it fills, in the struct of its table */
    int64_t least, most;  /* of COUNT and LENGTH */
    const char *initial;  /* its default, as text; NULL: 0, false or NULL */
    const char *words;    /* of WORD, separated by blanks */
    /* One sentence, with default and unit where the row has no others; '\n' begins a paragraph.
     * NULL: accepted, and not shown. */
    const char *help;
    const struct dcpk_option *rows; /* of ROWS */
    /* For knobs: the sections of a configuration file that have it, separated by blanks; its
     * possible effect, as the owner of the table numbers it; the document that defines it. */
    const char *sections;
    int effect;
    const char *source;
};

/* at_bytes of a field; a field of another type does not compile. */
#define DCPK_OPTION_AT(owner, type, field)                                                         \
    (offsetof(owner, field) + 0 * sizeof((type *)0 == &((owner *)0)->field))

/* The field of `values` that an option fills. */
static inline void *dcpk_option_field(const struct dcpk_option *option, void *values)
{
    return (char *)values + option->at_bytes;
}

/* Bytes of the field; 0 for rows that are not options. */
size_t dcpk_option_bytes(const struct dcpk_option *option);
/* True if the field is a const char *: TEXT, WORD and the kinds of files. */
bool dcpk_option_is_text(const struct dcpk_option *option);

/* True if the list of words, which may be NULL, has word[0 .. n_bytes). */
bool dcpk_option_has_word(const char *list, const char *word, size_t n_bytes);
/* The number of a word in the list, from 1; 0: it is not there, or NULL. */
int dcpk_option_number(const char *list, const char *word);

/* How a text names an option: by one of its names, or by one that means the opposite. */
enum dcpk_option_sense { DCPK_OPTION_OTHER, DCPK_OPTION_SAME, DCPK_OPTION_OPPOSITE };
/* name: n_bytes, with '-' or '_' where the row has '_'. */
enum dcpk_option_sense dcpk_option_is_named(const struct dcpk_option *option, const char *name,
                                            size_t n_bytes);

/* Read a text into the option's field. Returns false, and changes nothing, for a text that is not
 * of its kind or out of its range, and for a list that is full. The text is borrowed. */
bool dcpk_option_read(const struct dcpk_option *option, const char *text, void *values);

/* Set the option's field to its default. */
void dcpk_option_reset(const struct dcpk_option *option, void *values);

/* Describes the values of an option: "a whole number from 1 to 2^40". Returns `text`, or a
 * constant. */
#define DCPK_OPTION_TAKES_BYTES 80
const char *dcpk_option_takes(const struct dcpk_option *option, char text[DCPK_OPTION_TAKES_BYTES]);

/*
 * True if `word` is `name` with a slip of the hand: the same except one place of at most 3 bytes,
 * and of no more than half of it.
 */
bool dcpk_option_is_near(const char *word, const char *name);

#endif
