#include "weft/weft.h"

// The program's heap is jemalloc, which reads this option: unused address space returns to the
// system, as `ulimit -v` limits it.
extern "C" {
const char* malloc_conf = "retain:false";
}

int main(int argc, char** argv) { return weft::main(argc, argv); }
