// Simulates a cuDNN that knows its version alone, which is too old for weft.
#include <cstddef>

extern "C" size_t cudnnGetVersion() { return 91400; }
