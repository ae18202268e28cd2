/* Wide characters on every kind of stream, narrow ones beside them. */
#include "family.h"
#include <locale.h>
#include <wchar.h>

int main(void) {
    wchar_t line[64];
    setlocale(LC_ALL, "C.UTF-8");
    FILE *f = fopen("out", "w");
    SHOW(fwide(f, 0)), SHOW(fputws(L"grüße\n", f) >= 0), SHOW(fwide(f, 0) > 0), SHOW(fputwc(L'€', f)), SHOW(putwc(L'\n', f));
    SHOW(fwprintf(f, L"%d %ls\n", 7, L"wörter")), SHOW(fflush(f)), SHOW(ftell(f)), SHOW(fputc('x', f)), SHOW(fclose(f));
    f = fopen("out", "r");
    SHOW(fgetws(line, 64, f) != NULL), SHOW(wcslen(line)), SHOW(fgetwc(f)), SHOW(ungetwc(L'$', f)), SHOW(getwc(f));
    int number;
    SHOW(fwscanf(f, L"%d", &number)), SHOW(number), SHOW(fgetws(line, 64, f) != NULL), SHOW(fgetwc(f)), SHOW(feof(f) != 0);
    SHOW(fclose(f));
    f = fopen("out", "r+");
    SHOW(fwide(f, 1) > 0), SHOW(fgetwc(f)), SHOW(fseek(f, 0, SEEK_END)), SHOW(fputws(L"end\n", f) >= 0), SHOW(fclose(f));
    f = fopen("out.2", "w");
    SHOW(fputs("narrow\n", f) >= 0), SHOW(fputwc(L'w', f)), SHOW(fwide(f, 1) < 0), SHOW(fclose(f));
    show_file("out"), show_file("out.2");
    fflush(stdout);
    return 0;
}
