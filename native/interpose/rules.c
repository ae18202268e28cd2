/* Answers from the rules area: who may produce a name, by which rule it is committed, whether it is excluded.
 *
 * The area is the blob that streaming/rules.py compiled, copied into the table once and never changed. Both give the
 * same answers; a property test holds them to it. A name is classified once, when its slot is made.
 */
#include "table_sys.h"

#include <string.h>

static const struct ps_rules_head *rules_head(void) {
    return (const struct ps_rules_head *)((const char *)ps + ps->rules_at);
}
static const struct ps_rules_app *rules_apps(const struct ps_rules_head *head) {
    return (const struct ps_rules_app *)(head + 1);
}
static const struct ps_rules_entry *rules_entries(const struct ps_rules_head *head) {
    return (const struct ps_rules_entry *)(rules_apps(head) + head->n_apps);
}
static const char *rules_strings(const struct ps_rules_head *head) {
    return (const char *)(rules_entries(head) + head->n_entries);
}

bool ps_rules_valid(const void *blob, uint32_t bytes) {
    const struct ps_rules_head *head = blob;
    if (bytes < sizeof *head || head->magic != PS_RULES_MAGIC || head->version != PS_VERSION) return false;
    if (head->total_bytes != bytes || head->n_apps >= PS_APPS) return false;
    uint64_t strings_at = sizeof *head + (uint64_t)head->n_apps * sizeof(struct ps_rules_app) +
                          (uint64_t)head->n_entries * sizeof(struct ps_rules_entry);
    if (strings_at + head->strings_bytes != bytes) return false;
    for (uint32_t i = 0; i < head->n_apps; i++) {
        const struct ps_rules_app *app = rules_apps(head) + i;
        if ((uint64_t)app->name_at + app->name_bytes > head->strings_bytes) return false;
    }
    for (uint32_t i = 0; i < head->n_entries; i++) {
        const struct ps_rules_entry *entry = rules_entries(head) + i;
        if ((uint64_t)entry->pattern_at + entry->pattern_bytes > head->strings_bytes) return false;
        if (entry->kind < PS_OUTPUT || entry->kind > PS_TEMPORARY) return false;
        if (entry->kind <= PS_DIR_RULE && entry->app >= head->n_apps) return false;
        if (entry->commit > PS_N_FILES || entry->fire > PS_NO_UPDATE || entry->pattern_bytes > PS_NAME_MAX) return false;
    }
    return true;
}

/* Bytes of the character at `at`: a valid UTF-8 sequence, or one byte that is part of none. */
static inline size_t character(const unsigned char *at, size_t left) {
    unsigned char first = at[0];
    if (first < 0x80) return 1;
    size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || length > left) return 1;
    unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (at[1] < least || at[1] > most) return 1;
    for (size_t i = 2; i < length; i++)
        if ((at[i] & 0xc0) != 0x80) return 1;
    return length;
}

bool ps_matches(const char *pattern_at, size_t pattern_bytes, const char *name_at, size_t name_bytes) {
    const unsigned char *pattern = (const unsigned char *)pattern_at, *name = (const unsigned char *)name_at;
    size_t p = 0, n = 0, star = SIZE_MAX, resume = 0;
    while (n < name_bytes) {
        if (p < pattern_bytes && pattern[p] == '*') {
            star = p++;
            resume = n;
            continue;
        }
        size_t here = character(name + n, name_bytes - n);
        if (p < pattern_bytes && pattern[p] == '?') {
            p++;
            n += here;
            continue;
        }
        if (p < pattern_bytes) {
            size_t asked = character(pattern + p, pattern_bytes - p);
            if (asked == here && memcmp(pattern + p, name + n, here) == 0) {
                p += asked;
                n += here;
                continue;
            }
        }
        if (star == SIZE_MAX) return false;
        resume += character(name + resume, name_bytes - resume); /* the star takes one character more */
        n = resume;
        p = star + 1;
    }
    while (p < pattern_bytes && pattern[p] == '*') p++;
    return p == pattern_bytes;
}

static size_t literal_prefix(const char *pattern, size_t bytes) {
    size_t length = 0;
    while (length < bytes && pattern[length] != '*' && pattern[length] != '?') length++;
    return length;
}

/* The set of places in the pattern that text so far may have led to: one bit per byte, PS_NAME_MAX + 1 of them. */
struct places {
    uint64_t bits[(PS_NAME_MAX + 64) / 64 + 1];
};
static inline void add_place(struct places *set, const unsigned char *pattern, size_t bytes, size_t place) {
    set->bits[place / 64] |= UINT64_C(1) << place % 64;
    while (place < bytes && pattern[place] == '*') { /* a star may stand for nothing */
        place++;
        set->bits[place / 64] |= UINT64_C(1) << place % 64;
    }
}

static bool step(struct places *set, const unsigned char *pattern, size_t bytes, const unsigned char *text, size_t here) {
    struct places next = {0};
    bool alive = false;
    for (size_t word = 0; word <= bytes / 64; word++)
        for (uint64_t bits = set->bits[word]; bits; bits &= bits - 1) {
            size_t place = word * 64 + (size_t)__builtin_ctzll(bits);
            if (place >= bytes) continue;
            if (pattern[place] == '*') {
                add_place(&next, pattern, bytes, place);
                alive = true;
            } else {
                size_t asked = character(pattern + place, bytes - place);
                if (pattern[place] != '?' && (asked != here || memcmp(pattern + place, text, here) != 0)) continue;
                add_place(&next, pattern, bytes, place + asked);
                alive = true;
            }
        }
    *set = next;
    return alive;
}

bool ps_reaches(const char *pattern_at, size_t pattern_bytes, const char *name_at, size_t name_bytes) {
    const unsigned char *pattern = (const unsigned char *)pattern_at, *name = (const unsigned char *)name_at;
    if (name_bytes == 1 && name[0] == '.') return true;
    size_t literal = literal_prefix(pattern_at, pattern_bytes);
    size_t same = literal < name_bytes ? literal : name_bytes;
    if (memcmp(pattern, name, same) != 0) return false;
    if (literal == pattern_bytes) return literal > name_bytes + 1 && pattern[name_bytes] == '/';
    struct places set = {0};
    add_place(&set, pattern, pattern_bytes, 0);
    for (size_t n = 0; n < name_bytes;) {
        size_t here = character(name + n, name_bytes - n);
        if (!step(&set, pattern, pattern_bytes, name + n, here)) return false;
        n += here;
    }
    if (!step(&set, pattern, pattern_bytes, (const unsigned char *)"/", 1)) return false;
    set.bits[pattern_bytes / 64] &= ~(UINT64_C(1) << pattern_bytes % 64); /* a name below has at least one character */
    for (size_t word = 0; word <= pattern_bytes / 64; word++)
        if (set.bits[word]) return true;
    return false;
}

/* Of several rules the first one of the file holds. */
static void take_rule(struct ps_rule *rule, bool *ruled, uint32_t *by, const struct ps_rules_entry *entry, uint32_t number) {
    if (*ruled && *by < number) return;
    *ruled = true;
    *by = number;
    *rule = (struct ps_rule){entry->commit, entry->fire, entry->serial, entry->n};
    if (rule->n == 0 && (rule->commit == PS_ON_CLOSE || rule->commit == PS_N_FILES)) rule->n = 1;
}

static void found(struct ps_class *out, uint32_t number, const struct ps_rules_entry *entry, bool matches, bool reaches) {
    uint64_t app = entry->app < PS_APPS ? UINT64_C(1) << entry->app : 0;
    if (entry->kind == PS_OUTPUT && (matches || reaches)) out->makers |= app;
    if (!matches) return;
    switch (entry->kind) {
    case PS_EXCLUDE: out->excluded = true; break;
    case PS_OUTPUT: out->producers |= app; break;
    case PS_INPUT: out->consumers |= app; break;
    case PS_FILE_RULE: take_rule(&out->file, &out->file_ruled, &out->file_entry, entry, number); break;
    case PS_DIR_RULE:
        take_rule(&out->directory, &out->dir_ruled, &out->dir_entry, entry, number);
        out->makers |= app;
        break;
    case PS_PERMANENT: out->lasting = PS_LASTS; break;
    case PS_TEMPORARY:
        if (out->lasting == PS_LASTS_UNSAID) out->lasting = PS_PASSES;
        break;
    }
}

void ps_classify(const char *name, size_t bytes, struct ps_class *out) {
    const struct ps_rules_head *head = rules_head();
    const struct ps_rules_index *index = (const struct ps_rules_index *)((const char *)ps + ps->index_at);
    const struct ps_class nothing = {.file.serial = 0xffff, .directory.serial = 0xffff};
    *out = nothing;
    for (uint32_t i = 0; i < index->general; i++) {
        uint32_t number = index->entries[i];
        const struct ps_rules_entry *entry = rules_entries(head) + number;
        const char *pattern = rules_strings(head) + entry->pattern_at;
        bool reaches = entry->kind == PS_OUTPUT && ps_reaches(pattern, entry->pattern_bytes, name, bytes);
        found(out, number, entry, ps_matches(pattern, entry->pattern_bytes, name, bytes), reaches);
    }
    ps_find_simple(head, index, name, bytes, found, out);
    if (!out->excluded) return;
    *out = nothing;
    out->excluded = true;
}

uint32_t ps_app_number(const char *name, size_t bytes) {
    const struct ps_rules_head *head = rules_head();
    for (uint32_t i = 0; i < head->n_apps; i++) {
        const struct ps_rules_app *app = rules_apps(head) + i;
        if (app->name_bytes == bytes && memcmp(rules_strings(head) + app->name_at, name, bytes) == 0) return i;
    }
    return PS_APP_OTHER;
}

const char *ps_app_name(uint32_t app, uint32_t *bytes) {
    const struct ps_rules_head *head = rules_head();
    static const char other[] = "(a program of no step)";
    if (app >= head->n_apps) {
        *bytes = sizeof other - 1;
        return other;
    }
    *bytes = rules_apps(head)[app].name_bytes;
    return rules_strings(head) + rules_apps(head)[app].name_at;
}
