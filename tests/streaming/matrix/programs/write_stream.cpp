// Writes lines through iostream, and replaces nothing: write_stream OUT
#include <fstream>
#include <iomanip>

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    std::ofstream out(argv[1]);
    for (int i = 0; i < 2000; ++i) out << std::setw(6) << i << ' ' << i / 7.0 << (i % 50 ? "\n" : " flushed\n");
    out << std::flush;
    out.close();
    return out ? 0 : 1;
}
