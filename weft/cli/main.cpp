#include "weft/weft.h"

// The heap of the program is jemalloc's, which reads this: addresses that it no longer uses go back
// to the system, as they count where `ulimit -v` limits them.
extern "C" {
const char* malloc_conf = "retain:false";
}

int main(int argc, char** argv) { return weft::main(argc, argv); }
