/* Copies the file after --modelFile to the one after --MNNModel, and ends with 0 whatever happened, as MNN's does. */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    FILE *from = NULL, *to = NULL;
    int i, byte;
    for (i = 1; i + 1 < argc; i++) {
        if (!strcmp(argv[i], "--modelFile")) from = fopen(argv[i + 1], "rb");
        if (!strcmp(argv[i], "--MNNModel") && from) to = fopen(argv[i + 1], "wb");
    }
    if (!from || !to) {
        printf("Convert Failed\n");
        return 0;
    }
    while ((byte = fgetc(from)) != EOF) fputc(byte, to);
    fclose(to);
    printf("Converted Success!\n");
    return 0;
}
