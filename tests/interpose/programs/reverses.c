/* stdin to stdout with every line reversed, in wide characters, as rev does. */
#include "family.h"
#include <locale.h>
#include <wchar.h>

int main(void) {
    wchar_t line[256];
    setlocale(LC_ALL, "C.UTF-8");
    while (fgetws(line, 256, stdin)) {
        size_t n = wcslen(line) - 1;
        for (size_t i = 0; i < n / 2; i++) {
            wchar_t c = line[i];
            line[i] = line[n - 1 - i], line[n - 1 - i] = c;
        }
        fputws(line, stdout);
    }
    return 0;
}
