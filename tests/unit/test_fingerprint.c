/* SPDX-License-Identifier: Apache-2.0 */
/* test_fingerprint.c - sums against numbers computed in Python from the definition, over any
 * partition, and after errors of every kind that moves elements or flips their bits. */
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/order.h"
#include "lib/tensor/fingerprint.h"
#include "tests/check.h"
#include "tests/random.h"

#define SIDE  64
#define WORDS (SIDE * SIDE)

static void sums_are_those_of_the_definition(void **state)
{
    static const struct {
        const char *label;
        uint8_t bytes[16];
        size_t word_bytes, n_words;
        uint64_t want;
    } vectors[] = {
        {"one", {1}, 1, 1, UINT64_C(0x17fb89ee8a313dc5)},
        {"the second", {0, 1}, 1, 2, UINT64_C(0xc99d164a14627b89)},
        {"bytes", {1, 2, 3, 4, 5, 6, 7, 8}, 1, 8, UINT64_C(0x2bd8c29f1b550dac)},
        {"two bytes", {0xff, 0, 0xff, 0, 0xff, 0}, 2, 3, UINT64_C(0xa85953a1bf6650c9)},
        {"four bytes", {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0x80}, 4, 2, UINT64_C(0x7c66f19af5cec23b)},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(vectors); i++)
        CHECK(dcpk_fingerprint_sum(vectors[i].bytes, vectors[i].word_bytes, vectors[i].n_words,
                                   0) == vectors[i].want,
              vectors[i].label);
    CHECK_EQ_INT(dcpk_fingerprint_word_bytes(1), 1, "u8");
    CHECK_EQ_INT(dcpk_fingerprint_word_bytes(2), 2, "bf16");
    CHECK_EQ_INT(dcpk_fingerprint_word_bytes(8), 4, "f64 is two words");
    CHECK_EQ_INT(dcpk_fingerprint_word_bytes(16), 4, "c128 is four words");
}

/* Whoever holds which words: the sum is the same. */
static void parts_add_up(void **state)
{
    uint8_t bytes[4096];
    uint64_t seed = 1;

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)random_next(&seed);
    for (size_t word_bytes = 1; word_bytes <= 4; word_bytes *= 2) {
        const size_t n = sizeof bytes / word_bytes;
        const uint64_t whole = dcpk_fingerprint_sum(bytes, word_bytes, n, 5);

        for (int round = 0; round < 100; round++) {
            uint64_t sum = 0;

            for (size_t at = 0, end; at < n; at = end) {
                end = at + 1 + random_below(&seed, n - at);
                sum += dcpk_fingerprint_sum(bytes + at * word_bytes, word_bytes, end - at, 5 + at);
            }
            CHECK(sum == whole, "parts");
        }
    }
}

enum data { RANDOM, TINY, CONSTANT_ROWS, POWERS, N_DATA };
static const char *const data_names[] = {"random", "tiny integers", "constant rows",
                                         "powers of two"};

static void make_data(enum data kind, uint64_t *seed, uint32_t *words)
{
    for (size_t i = 0; i < WORDS; i++)
        switch (kind) {
        case RANDOM:
            words[i] = (uint32_t)random_next(seed);
            break;
        case TINY:
            words[i] = (uint32_t)random_below(seed, 3);
            break;
        case CONSTANT_ROWS:
            words[i] = i % SIDE == 0 ? (uint32_t)random_below(seed, 8) : words[i - 1];
            break;
        case POWERS:
        case N_DATA:
            words[i] = 1u << random_below(seed, 32);
        }
}

static void swap_words(uint32_t *a, uint32_t *b, size_t n, size_t step)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t swap = a[i * step];

        a[i * step] = b[i * step];
        b[i * step] = swap;
    }
}

enum damage { ELEMENTS, ROWS, COLUMNS, HALVES, SHIFT, DUPLICATE, BIT_PAIR, N_DAMAGES };
static const char *const damage_names[] = {
    "two elements",  "two rows",         "two columns", "halves of two rows",
    "a shifted row", "a duplicated row", "two bits"};

static void do_damage(enum damage kind, uint64_t *seed, uint32_t *words)
{
    const size_t a = random_below(seed, SIDE), b = random_below(seed, SIDE);

    switch (kind) {
    case ELEMENTS:
        swap_words(words + random_below(seed, WORDS), words + random_below(seed, WORDS), 1, 1);
        break;
    case ROWS:
        swap_words(words + a * SIDE, words + b * SIDE, SIDE, 1);
        break;
    case COLUMNS:
        swap_words(words + a, words + b, SIDE, SIDE);
        break;
    case HALVES:
        swap_words(words + a * SIDE, words + b * SIDE + SIDE / 2, SIDE / 2, 1);
        break;
    case SHIFT:
        memmove(words + a * SIDE + 1, words + a * SIDE, (SIDE - 1) * sizeof *words);
        break;
    case DUPLICATE:
        memmove(words + a * SIDE, words + b * SIDE, SIDE * sizeof *words);
        break;
    case BIT_PAIR:
    case N_DAMAGES:
        words[random_below(seed, WORDS)] ^= 1u << random_below(seed, 32);
        words[random_below(seed, WORDS)] ^= 1u << random_below(seed, 32);
    }
}

/* The sum of the rows that differ, before and after: the others have not changed. */
static uint64_t sum_changed(const uint32_t *words, const uint32_t *other)
{
    uint64_t sum = 0;

    for (size_t r = 0; r < SIDE; r++)
        if (memcmp(words + r * SIDE, other + r * SIDE, SIDE * sizeof *words) != 0)
            sum += dcpk_fingerprint_sum(words + r * SIDE, 4, SIDE, r * SIDE);
    return sum;
}

#define ROUNDS_OF_DATA 5000 /* then it is made anew */

/* DCPK_ROUNDS: so many of each damage to each kind of data. */
static uint64_t n_rounds(void)
{
    const char *text = getenv("DCPK_ROUNDS");

    return text == NULL ? ROUNDS_OF_DATA : strtoull(text, NULL, 10);
}

/* Returns how many rounds changed something; none of those is missed. */
static uint64_t damage_data(enum data kind, enum damage damage, uint64_t rounds, uint64_t *seed)
{
    static uint32_t words[WORDS], damaged[WORDS];
    uint64_t n_real = 0;
    char label[96];

    snprintf(label, sizeof label, "%s: %s", data_names[kind], damage_names[damage]);
    for (uint64_t round = 0; round < rounds; round++) {
        if (round % ROUNDS_OF_DATA == 0)
            make_data(kind, seed, words);
        memcpy(damaged, words, sizeof words);
        do_damage(damage, seed, damaged);
        if (memcmp(damaged, words, sizeof words) == 0)
            continue;
        n_real++;
        CHECK(sum_changed(words, damaged) != sum_changed(damaged, words), label);
    }
    return n_real;
}

static void no_damage_is_missed(void **state)
{
    uint64_t n_real = 0, seed = 1;

    (void)state;
    for (int kind = 0; kind < N_DATA; kind++)
        for (int damage = 0; damage < N_DAMAGES; damage++)
            n_real += damage_data((enum data)kind, (enum damage)damage, n_rounds(), &seed);
    CHECK(n_real > n_rounds() * N_DATA * N_DAMAGES / 2, "most rounds change something");
    if (n_rounds() > ROUNDS_OF_DATA)
        printf("%" PRIu64 " damages, none missed\n", n_real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_definition),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(no_damage_is_missed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
