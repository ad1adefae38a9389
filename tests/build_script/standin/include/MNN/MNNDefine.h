#ifndef MNNDefine_h
#define MNNDefine_h
#define MNN_VERSION_MAJOR 3
#define MNN_VERSION_MINOR 6
#define MNN_VERSION_PATCH 1
int standin_engine(void);
#endif
