#include "MNN/MNNDefine.h"
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    const char *slash = strrchr(argv[0], '/');
    printf("stand-in for %s, engine %d\n", slash ? slash + 1 : argv[0], standin_engine());
    return 0;
}
