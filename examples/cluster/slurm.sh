#!/usr/bin/env bash
# Trains a recipe on four ranks of one host, and resumes it when Slurm starts the job again.
#
#   sbatch examples/cluster/slurm.sh recipes/shakespeare.yaml --name shakespeare
#
# Before the time limit, and when a job of higher priority takes the host, Slurm sends SIGTERM: weft
# saves and ends with exit code 75, and the job is queued again.
#SBATCH --job-name=weft
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@300
set -uo pipefail
export WEFT_THREADS=${SLURM_CPUS_PER_TASK:-1}
trap : TERM  # the ranks hear the signal, and this script waits for them

# A job that is started again resumes its run, or starts it where it had not come so far.
arguments=("$@")
name=
for ((i = 1; i < $#; ++i)); do
  [ "${arguments[i]}" != --name ] || name=${arguments[i + 1]:-}
done
if [ -z "$name" ]; then
  echo "slurm.sh: needs --name NAME, by which the run is found again" >&2
  exit 2
fi
resume=()
[ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] || [ ! -d "runs/$name" ] || resume=(--resume)

srun "${WEFT:-weft}" train "$@" "${resume[@]}" &
step=$!
while wait "$step"; code=$?; kill -0 "$step" 2>/dev/null; do :; done  # a signal ends a wait

# scancel sends SIGTERM, too; a job that was cancelled is COMPLETING, and stays cancelled.
state=$(scontrol show job "$SLURM_JOB_ID" | grep -o 'JobState=[A-Z]*')
if [ "$code" -eq 75 ] && [ "$state" = JobState=RUNNING ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
