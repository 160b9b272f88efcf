// Every verb of weft, with one model more.
#include <weft/weft.h>

int main(int argc, char** argv) {
  weft::register_model("mine", [] { return 0; });
  return weft::main(argc, argv);
}
