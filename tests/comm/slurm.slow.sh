#!/usr/bin/env bash
# Checks ranks under a real Slurm, whose daemons run in namespaces of their own: a job of four ranks
# that is preempted, requeued and resumed ends with the bits of a run that nobody disturbed, a
# cancelled job stays cancelled, and a killed rank is named.
set -euo pipefail
skip() { echo "skipped: $*"; exit 77; }

for program in munged slurmctld slurmd srun ip; do
  PATH=$PATH:/usr/sbin command -v "$program" >/dev/null ||
    skip "$program is not here (tools/setup.sh --cluster)"
done
[ "$(id -u)" -eq 0 ] || skip "only root can start slurmd"
if [ -z "${IN_NAMESPACES:-}" ]; then
  # With the first process of the namespace all others end, so that no daemon survives.
  unshare --net --pid --mount --fork true 2>/dev/null || skip "no CAP_SYS_ADMIN for namespaces"
  IN_NAMESPACES=1 exec unshare --net --pid --mount --fork --kill-child --mount-proc "$0"
fi
export PATH=$PATH:/usr/sbin
ip link set lo up
ip address add 192.0.2.1/32 dev lo  # glibc finds no address to listen on where all are loopback's

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work"/{run,state,spool,log,jobs}
host=$(hostname -s)
fail() {
  echo "slurm: $*"
  tail -n 15 "$work"/log/* "$work"/jobs/*.out 2>/dev/null
  exit 1
}
until_true() {  # SECONDS COMMAND ...
  local last=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$last" ] || fail "waited in vain for: $*"
    sleep 0.2
  done
}

# More processors than there may be: four ranks need a core each in Slurm's eyes.
cat >"$work/slurm.conf" <<EOF
ClusterName=weft
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/run/munge.socket,cred_expire=3
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/run/slurmctld.pid
SlurmdPidFile=$work/run/slurmd.pid
SlurmctldLogFile=$work/log/slurmctld.log
SlurmdLogFile=$work/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=30
SchedulerParameters=sched_interval=2,bf_interval=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=low Nodes=$host Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=120
PartitionName=high Nodes=$host MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
EOF
export SLURM_CONF=$work/slurm.conf
dd if=/dev/urandom of="$work/run/munge.key" bs=128 count=1 status=none
chmod 400 "$work/run/munge.key"
munged --foreground --force --key-file="$work/run/munge.key" --socket="$work/run/munge.socket" \
  --pid-file="$work/run/munged.pid" --seed-file="$work/run/munged.seed" \
  --log-file="$work/log/munged.log" >"$work/log/munged.out" 2>&1 &
until_true 20 test -S "$work/run/munge.socket"
slurmctld -D >"$work/log/slurmctld.out" 2>&1 &
slurmd -D >"$work/log/slurmd.out" 2>&1 &
is_idle() { sinfo -h -p low -o %T 2>/dev/null | grep -qx idle; }
until_true 60 is_idle

cat >"$work/jobs/gpt.yaml" <<'EOF'
name: gpt
model: {name: gpt, config: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, dropout: 0}}
data: {dataset: random-tokens, seq_len: 16, classes: 64}
optimizer: {name: adamw, lr: 0.01}
train: {steps: 3000, global_batch_size: 8}
checkpoint: {every: 1000}
log: {every: 20}
EOF
cd "$work/jobs"
script=$SRC/examples/cluster/slurm.sh
submit() {  # NAME ARGUMENTS ...
  local name=$1
  shift
  sbatch --parsable --partition=low --output="$work/jobs/$name.out" \
    "$script" gpt.yaml --name "$name" "$@"
}
state_of() { scontrol show job "$1" 2>/dev/null | grep -o 'JobState=[A-Z]*' | cut -d= -f2; }
is() { [[ " ${*:2} " == *" $(state_of "$1") "* ]]; }
trains() { grep -q '"step": *[0-9][0-9]' "runs/$1/log.jsonl" 2>/dev/null; }
restarts() { scontrol show job "$1" | grep -o 'Restarts=[0-9]*'; }
bits() {
  (cd "runs/$1/checkpoints/step-00003000" &&
    sha256sum model.safetensors state-*.safetensors data.json rng.json)
}

# An undisturbed run, by weft launch.
WEFT_THREADS=1 "$WEFT" launch -n 4 --oversubscribe train gpt.yaml --name plain >"$work/jobs/plain.out" 2>&1 ||
  fail "the undisturbed run failed"

# A job of higher priority takes the host.
job=$(submit moved)
until_true 120 trains moved
high=$(sbatch --parsable --partition=high --ntasks=4 --output="$work/jobs/high.out" --wrap 'sleep 1')
until_true 180 is "$high" COMPLETED
[ "$(restarts "$job")" = Restarts=1 ] || fail "the job was not requeued"
[ ! -e runs/moved/checkpoints/step-00003000 ] || fail "the job was at its end before it was preempted"
until_true 60 is "$job" PENDING RUNNING
scontrol update "JobId=$job" StartTime=now  # requeued jobs wait two minutes
until_true 300 is "$job" COMPLETED
[ "$(bits moved)" = "$(bits plain)" ] || fail "the resumed job ends with other bits"
echo "slurm: preempted, requeued and resumed: $(grep -cE '^step ' "$work/jobs/moved.out") lines of steps, equal bits"

# A cancelled job saves and is not queued again.
job=$(submit cancelled --train.steps 1000000)
until_true 120 trains cancelled
scancel "$job"
until_true 120 is_idle
[ "$(state_of "$job")" = CANCELLED ] || fail "a cancelled job is $(state_of "$job")"
ls runs/cancelled/checkpoints/latest >/dev/null || fail "a cancelled job saved nothing"

# A rank is killed: all end, by themselves, and it is named.
job=$(submit killed --train.steps 1000000)
until_true 120 trains killed
victim=
for process in /proc/[0-9]*; do
  if tr '\0' '\n' <"$process/environ" 2>/dev/null | grep -qx SLURM_PROCID=2 &&
    grep -qz -- --name "$process/cmdline" && [ "$(readlink "$process/exe")" = "$(readlink -f "$WEFT")" ]; then
    victim=${process#/proc/}
  fi
done
[ -n "$victim" ] || fail "rank 2 is not found"
kill -KILL "$victim"
until_true 60 is "$job" FAILED
until_true 60 is_idle
grep -q "rank 2 (host $host, pid $victim) is dead" "$work/jobs/killed.out" || fail "rank 2 is not named"
[ "$(restarts "$job")" = Restarts=0 ] || fail "a job that failed was requeued"
! pgrep -f 'train gpt.yaml' >/dev/null || fail "a rank is left"
echo "slurm: a cancelled job stays so; $(grep -o 'rank 2 (host.*is dead' "$work/jobs/killed.out" | head -1)"
