// libweft-mpi.so: the functions that weft calls, by those of MPI (MPI 3.1).
#include "weft/comm/mpi_plugin/mpi_plugin.h"

#include <climits>
#include <cstring>
#include <type_traits>

#include <mpi.h>

namespace {
static_assert(sizeof(MPI_Request) <= sizeof(weft_mpi_request));

MPI_Comm ranks = MPI_COMM_NULL;  // apart from what a program of users sends itself

int fail(int code, char* why, size_t room) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  std::strncpy(why, text, room - 1);
  why[room - 1] = '\0';
  return 1;
}

// MPIs have pointers or numbers as handles; neither is 0 for a request.
template <class Handle>
weft_mpi_request packed(Handle request) {
  if (request == MPI_REQUEST_NULL) return 0;
  if constexpr (std::is_pointer_v<Handle>)
    return reinterpret_cast<uintptr_t>(request);
  else
    return static_cast<weft_mpi_request>(request);
}
template <class Handle>
Handle unpacked(weft_mpi_request bits) {
  if constexpr (std::is_pointer_v<Handle>)
    return reinterpret_cast<Handle>(static_cast<uintptr_t>(bits));
  else
    return static_cast<Handle>(bits);
}
}  // namespace

int weft_mpi_interface() { return WEFT_MPI_INTERFACE; }

int weft_mpi_start(char* why, size_t room) {
  int is_started = 0, granted = MPI_THREAD_SINGLE;
  MPI_Initialized(&is_started);
  if (is_started != 0)
    MPI_Query_thread(&granted);
  else if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &granted);
           code != MPI_SUCCESS)
    return fail(code, why, room);
  if (granted < MPI_THREAD_SERIALIZED) {
    std::strncpy(why, "this MPI can only be called by its main thread", room - 1);
    why[room - 1] = '\0';
    return 1;
  }
  if (ranks != MPI_COMM_NULL) return 0;
  if (const int code = MPI_Comm_dup(MPI_COMM_WORLD, &ranks); code != MPI_SUCCESS)
    return fail(code, why, room);
  MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN);
  return 0;
}

int weft_mpi_rank() {
  int rank = 0;
  MPI_Comm_rank(ranks, &rank);
  return rank;
}
int weft_mpi_size() {
  int size = 0;
  MPI_Comm_size(ranks, &size);
  return size;
}

void weft_mpi_describe(char* text, size_t room) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  version[std::strcspn(version, ",\n")] = '\0';
  std::strncpy(text, version, room - 1);
  text[room - 1] = '\0';
}

int weft_mpi_send(const void* bytes, size_t count, int rank, int tag, weft_mpi_request* request,
                  char* why, size_t room) {
  if (count > INT_MAX) return fail(MPI_ERR_COUNT, why, room);
  MPI_Request under_way = MPI_REQUEST_NULL;
  const int code =
      MPI_Isend(bytes, static_cast<int>(count), MPI_BYTE, rank, tag, ranks, &under_way);
  *request = packed(under_way);
  return code == MPI_SUCCESS ? 0 : fail(code, why, room);
}
int weft_mpi_receive(void* bytes, size_t count, int rank, int tag, weft_mpi_request* request,
                     char* why, size_t room) {
  if (count > INT_MAX) return fail(MPI_ERR_COUNT, why, room);
  MPI_Request under_way = MPI_REQUEST_NULL;
  const int code =
      MPI_Irecv(bytes, static_cast<int>(count), MPI_BYTE, rank, tag, ranks, &under_way);
  *request = packed(under_way);
  return code == MPI_SUCCESS ? 0 : fail(code, why, room);
}

int weft_mpi_test(weft_mpi_request* request, char* why, size_t room) {
  if (*request == 0) return 0;
  MPI_Request under_way = unpacked<MPI_Request>(*request);
  int has_ended = 0;
  const int code = MPI_Test(&under_way, &has_ended, MPI_STATUS_IGNORE);
  *request = has_ended != 0 ? 0 : packed(under_way);
  return code == MPI_SUCCESS ? 0 : fail(code, why, room);
}

void weft_mpi_stop() {
  int has_ended = 0;
  MPI_Finalized(&has_ended);
  if (has_ended == 0) MPI_Finalize();
}
