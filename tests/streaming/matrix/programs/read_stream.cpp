// Reads lines and numbers through iostream, then looks at the end of the file: read_stream IN OUT
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    std::ifstream in(argv[1]);
    std::ofstream out(argv[2]);
    if (!in || !out) return 1;
    std::string line;
    long sum = 0, lines = 0;
    while (lines < 100 && std::getline(in, line)) {
        std::istringstream words(line);
        long number = 0;
        words >> number;
        sum += number, ++lines;
        out << line << '\n';
    }
    out << "lines " << lines << " sum " << sum << '\n';
    out << std::string(std::istreambuf_iterator<char>(in), {});
    in.clear();
    in.seekg(0, std::ios::end);
    out << "\nsize " << in.tellg() << '\n';
    return out.flush() ? 0 : 1;
}
