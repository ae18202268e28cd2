// C++ streams: write NAME | read [NAME]
#include <fstream>
#include <iostream>
#include <string>

int main(int argc, char **argv) {
    if (std::string(argv[1]) == "write") {
        std::ofstream(argv[2]) << "by fstream" << std::endl;
        std::cout << "by cout" << std::endl;
        return 0;
    }
    std::ifstream file;
    if (argc > 2) file.open(argv[2]);
    std::string line;
    while (std::getline(argc > 2 ? file : std::cin, line)) std::cout << line << '\n';
}
