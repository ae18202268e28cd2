/* A simulation that leaves a file for every hour, whose header it writes again at its end, and a program that draws what it
   finds in a folder, not knowing how many there will be.
     weather simulate FOLDER HOURS BYTES MICROSECONDS_PER_HOUR
     weather draw FOLDER PICTURES MICROSECONDS_PER_PICTURE */
#include <dirent.h>

#include "work.h"

static void simulate(char **argv)
{
    int hours = atoi(argv[3]);
    size_t bytes = strtoull(argv[4], NULL, 10);
    unsigned char *field = malloc(bytes);
    for (int hour = 0; hour < hours; hour++) {
        char path[4096];
        uint64_t header[2] = {0, 0};
        compute(atof(argv[5]) / 1e6);
        fill(field, bytes, (uint64_t)hour << 24);
        snprintf(path, sizeof path, "%s/wrfout_%03d", argv[2], hour);
        FILE *out = opened(path, "w");
        fwrite(header, sizeof header, 1, out);
        fwrite(field, 1, bytes, out);
        header[0] = bytes, header[1] = (uint64_t)hour;
        fseek(out, 0, SEEK_SET);
        fwrite(header, sizeof header, 1, out);
        closed(out);
    }
}

static void draw(char **argv)
{
    struct dirent *entry;
    DIR *folder = opendir(argv[2]);
    if (!folder) perror(argv[2]), exit(1);
    while ((entry = readdir(folder))) {
        if (strncmp(entry->d_name, "wrfout_", 7)) continue;
        char path[8192];
        uint64_t header[2];
        snprintf(path, sizeof path, "%s/%s", argv[2], entry->d_name);
        FILE *in = opened(path, "r");
        if (fread(header, sizeof header, 1, in) != 1 || !header[0]) fprintf(stderr, "%s: no header\n", path), exit(1);
        unsigned char *field = malloc(header[0]);
        if (fread(field, 1, header[0], in) != header[0]) fprintf(stderr, "%s: too short\n", path), exit(1);
        closed(in);
        compute(atof(argv[4]) / 1e6);
        snprintf(path, sizeof path, "%s/%s.pgm", argv[3], entry->d_name);
        FILE *out = opened(path, "w");
        fprintf(out, "%llu %016llx\n", (unsigned long long)header[1], (unsigned long long)checksum(field, header[0], 0));
        closed(out);
        note_first_result();
        free(field);
    }
    closedir(folder);
}

int main(int argc, char **argv)
{
    if (argc < 5) return 2;
    begin();
    if (!strcmp(argv[1], "simulate")) simulate(argv);
    else draw(argv);
    return end();
}
