#include "weft/weft.h"

int main(int argc, char** argv) { return weft::main(argc, argv); }
