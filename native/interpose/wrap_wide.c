/* Wide characters on our streams. At its first wide call glibc makes such a stream one of its own over the descriptor,
 * unseen by us: so a reader waits for the commit before, and a writer's offset is asked for from then on; what it wrote
 * becomes known by the kernel's witness, and at the close. */
#include "interpose.h"

static void wide_use(FILE *file) {
    if (file->_mode > 0 || ps_state != PS_ACTIVE) return; /* done already */
    struct ps_description *d = ps_tracked(file->_fileno);
    if (!d || !ps_stream_is_ours(file)) return;
    atomic_fetch_or(&d->flags, PS_D_SHARED);
    if (d->flags & PS_D_WAITS) ps_await_slot(d->slot, PS_NEED_COMMIT); /* if it fails, so will the read's own end */
}

PS_WRAPS int fwide(FILE *file, int mode) {
    if (mode > 0) wide_use(file);
    return REAL(fwide)(file, mode);
}

#define WIDE(result, name, parameters, file, arguments) \
    PS_WRAPS result name parameters {                   \
        wide_use(file);                                 \
        return REAL(name) arguments;                    \
    }
WIDE(wint_t, fgetwc, (FILE *file), file, (file))
WIDE(wint_t, getwc, (FILE *file), file, (file))
WIDE(wint_t, getwchar, (void), stdin, ())
WIDE(wint_t, fgetwc_unlocked, (FILE *file), file, (file))
WIDE(wint_t, getwc_unlocked, (FILE *file), file, (file))
WIDE(wint_t, getwchar_unlocked, (void), stdin, ())
WIDE(wint_t, ungetwc, (wint_t c, FILE *file), file, (c, file))
WIDE(wchar_t *, fgetws, (wchar_t *out, int n, FILE *file), file, (out, n, file))
WIDE(wchar_t *, fgetws_unlocked, (wchar_t *out, int n, FILE *file), file, (out, n, file))
WIDE(wchar_t *, __fgetws_chk, (wchar_t *out, size_t room, int n, FILE *file), file, (out, room, n, file))
WIDE(wint_t, fputwc, (wchar_t c, FILE *file), file, (c, file))
WIDE(wint_t, putwc, (wchar_t c, FILE *file), file, (c, file))
WIDE(wint_t, putwchar, (wchar_t c), stdout, (c))
WIDE(wint_t, fputwc_unlocked, (wchar_t c, FILE *file), file, (c, file))
WIDE(wint_t, putwc_unlocked, (wchar_t c, FILE *file), file, (c, file))
WIDE(wint_t, putwchar_unlocked, (wchar_t c), stdout, (c))
WIDE(int, fputws, (const wchar_t *text, FILE *file), file, (text, file))
WIDE(int, fputws_unlocked, (const wchar_t *text, FILE *file), file, (text, file))
WIDE(int, vfwprintf, (FILE *file, const wchar_t *format, va_list rest), file, (file, format, rest))
WIDE(int, __vfwprintf_chk, (FILE *file, int flag, const wchar_t *format, va_list rest), file,
     (file, flag, format, rest))

/* The headers give the scanf family the names of their standard variants (__isoc99_…). */
PS_WRAPS int vfwscanf(FILE *file, const wchar_t *format, va_list rest) {
    wide_use(file);
    return REAL(__isoc99_vfwscanf)(file, format, rest);
}
PS_WRAPS int vwscanf(const wchar_t *format, va_list rest) { return vfwscanf(stdin, format, rest); }

PS_WRAPS int vwprintf(const wchar_t *format, va_list rest) { return vfwprintf(stdout, format, rest); }

#define WITH_LIST(last, call)  \
    va_list rest;              \
    va_start(rest, last);      \
    int result = call;         \
    va_end(rest);              \
    return result

PS_WRAPS int fwprintf(FILE *file, const wchar_t *format, ...) { WITH_LIST(format, vfwprintf(file, format, rest)); }
PS_WRAPS int wprintf(const wchar_t *format, ...) { WITH_LIST(format, vfwprintf(stdout, format, rest)); }
PS_WRAPS int __fwprintf_chk(FILE *file, int flag, const wchar_t *format, ...) {
    WITH_LIST(format, __vfwprintf_chk(file, flag, format, rest));
}
PS_WRAPS int __wprintf_chk(int flag, const wchar_t *format, ...) {
    WITH_LIST(format, __vfwprintf_chk(stdout, flag, format, rest));
}
PS_WRAPS int fwscanf(FILE *file, const wchar_t *format, ...) { WITH_LIST(format, vfwscanf(file, format, rest)); }
PS_WRAPS int wscanf(const wchar_t *format, ...) { WITH_LIST(format, vfwscanf(stdin, format, rest)); }
