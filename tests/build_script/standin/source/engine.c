#include "MNN/MNNDefine.h"

int standin_engine(void) { return MNN_VERSION_MAJOR; }
