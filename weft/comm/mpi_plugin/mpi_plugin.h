/* The interface of libweft-mpi.so, which is all of weft that is linked to MPI: plain functions, so
 * that it serves a weft that another compiler built. A weft and a plugin work together where both
 * have one WEFT_MPI_INTERFACE. All functions are for one thread at a time. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_MPI_INTERFACE 1

/* What is under way. 0: nothing. */
typedef uint64_t weft_mpi_request;

/* Functions that return int return 0, or 1 and write why into `why`, of `room` bytes. */

int weft_mpi_interface(void); /* WEFT_MPI_INTERFACE as it was compiled */
/* Joins the ranks that MPI's launcher started. All of them call it together. */
int weft_mpi_start(char* why, size_t room);
int weft_mpi_rank(void);
int weft_mpi_size(void);
/* Writes the name and version of the MPI that runs. */
void weft_mpi_describe(char* text, size_t room);
/* Begin to send bytes to a rank, or to receive as many from it, of the same tag: 0 to 32,767, which
 * every MPI allows. The bytes stay where they are until weft_mpi_test says that they may change. */
int weft_mpi_send(const void* bytes, size_t count, int rank, int tag, weft_mpi_request* request,
                  char* why, size_t room);
int weft_mpi_receive(void* bytes, size_t count, int rank, int tag, weft_mpi_request* request,
                     char* why, size_t room);
/* Makes what is under way go on; sets `request` to 0 where it has ended. */
int weft_mpi_test(weft_mpi_request* request, char* why, size_t room);
/* Ends MPI, once all ranks have ended their work. */
void weft_mpi_stop(void);

#ifdef __cplusplus
}
#endif
