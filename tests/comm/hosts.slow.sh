#!/usr/bin/env bash
# Tests ranks of two hosts, which are network namespaces of this machine with names of their own:
# bits, a killed rank, a link that is cut for good, a relay that delays and then drops what ranks
# tell each other, signals, and what is refused. Needs root and Open MPI.
#   WEFT, BUILD, SRC  as cmake/testing.cmake sets them
set -euo pipefail

if [ "${1:-}" != inside ]; then
  [ -e "$BUILD/libweft-mpi.so" ] ||
    { echo "skipped: no libweft-mpi.so (tools/setup.sh --cluster)"; exit 77; }
  exec "$SRC/tests/support/two_hosts.sh" "$0" inside
fi

place=$(mktemp -d)
left=()  # processes to end
finish() {
  [ ${#left[@]} -eq 0 ] || kill -9 "${left[@]}" 2>/dev/null || true
  cd /
  rm -rf "$place"
}
trap finish EXIT
cd "$place"

export WEFT_THREADS=1
cat >tiny.yaml <<'RECIPE'
name: tiny
model: {name: gpt, config: {hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2, dropout: 0.1}}
data: {dataset: addition, digits: 1}
train: {steps: 12, global_batch_size: 8}
eval: {every: 6, batch_size: 8}
checkpoint: {every: 6}
log: {every: 1}
RECIPE

# ---- what tests say
fails=0
fail() {
  echo "FAILED: $1"
  sed 's/^/  | /' out err 2>/dev/null | grep -v '  [|] step' | tail -12
  fails=$((fails + 1))
}
# launch CODE WORD ...: runs weft launch on both hosts, whose exit code must be CODE.
launch() {
  local wanted=$1 code=0
  shift
  timeout 180 "$WEFT" launch -n 4 --hosts 10.99.0.1,10.99.0.2 --oversubscribe "$@" >out 2>err || code=$?
  [ $code = "$wanted" ] || fail "exit code $code, not $wanted, of: launch $*"
}
begin() {  # a run without an end, until it has saved
  rm -rf runs
  timeout 180 "$WEFT" launch -n 4 --hosts 10.99.0.1,10.99.0.2 --oversubscribe "$@" --steps 100000000 \
    --log.every 1000 --checkpoint.every 50 >out 2>err &
  run=$!
  until [ -e runs/tiny/checkpoints/step-00000050 ]; do
    kill -0 $run 2>/dev/null || { fail "the run ended before it saved"; return 1; }
    sleep 0.1
  done
}
ends() {  # CODE
  local code=0
  wait "$run" || code=$?
  [ $code = "$1" ] || fail "exit code $code, not $1"
}
says() { grep -qE -- "$1" err || fail "standard error does not say: $1"; }
errors() { [ "$(grep -c 'weft: error:' err)" = "$1" ] || fail "not $1 lines of errors"; }
none_left() {  # of the processes whose working folder is that of the test
  local process
  for _ in $(seq 100); do
    found=""
    for process in /proc/[0-9]*; do
      [ "$(readlink "$process/cwd" 2>/dev/null)" = "$place" ] || continue
      [ "${process#/proc/}" = $$ ] || [[ " ${left[*]-} " = *" ${process#/proc/} "* ]] && continue
      grep -qE 'weft|mpirun|orted' "$process/cmdline" 2>/dev/null && found+=" $(tr '\0' ' ' <"$process/cmdline")"
    done
    [ -n "$found" ] || return 0
    sleep 0.1
  done
  fail "left behind:$found"
}
process_of_rank() {
  local process
  for process in /proc/[0-9]*; do
    [ "$(readlink "$process/cwd" 2>/dev/null)" = "$place" ] || continue
    grep -qz "^OMPI_COMM_WORLD_RANK=$1$" "$process/environ" && echo "${process#/proc/}" && return
  done
}

# same_bits FOLDER: the last run's checkpoint is that of FOLDER.
same_bits() {
  local file
  for file in model.safetensors state-optimizer.safetensors rng.json; do
    cmp "$1/tiny/checkpoints/latest/$file" "runs/tiny/checkpoints/latest/$file" || fail "other bits in $file"
  done
}
echo "== ranks of two hosts have the bits of ranks of one host, and of one rank that accumulates"
"$WEFT" launch -n 4 --oversubscribe train tiny.yaml >out 2>err || fail "one host"
mv runs one_host
"$WEFT" train tiny.yaml --train.micro_batch_size 2 --model.config.dropout 0 >out 2>err || fail "one rank"
mv runs alone
for zero in 0 1 2 3; do
  launch 0 train tiny.yaml --parallel.zero $zero
  same_bits one_host
  rm -rf runs
done
launch 0 train tiny.yaml --model.config.dropout 0
same_bits alone
none_left

echo "== with parameters in parts, a run that was stopped and resumed has the bits of one that was not"
rm -rf runs
launch 0 train tiny.yaml --parallel.zero 3 --steps 6
launch 0 train tiny.yaml --parallel.zero 3 --steps 12 --resume
same_bits one_host
rm -rf runs
none_left

echo "== SIGTERM to the launcher saves, and the run goes on"
begin train tiny.yaml && {
  kill -TERM "$(pgrep -P $run)"  # the child of timeout
  ends 75
  grep -q 'by a signal; saved' out || fail "no word of the save"
  step=$(readlink runs/tiny/checkpoints/latest | tr -dc 0-9)
  launch 0 train tiny.yaml --resume --steps $((10#$step + 3))
}

echo "== a killed rank of the other host is named"
begin train tiny.yaml && {
  kill -9 "$(process_of_rank 3)"
  ends 8
  says 'rank 3 \(host nodeb, pid [0-9]+\) is dead'
  errors 1
  none_left
}

echo "== a stopped rank of the other host is silent, and does not stay"
begin train tiny.yaml && {
  kill -STOP "$(process_of_rank 3)"
  ends 8
  says 'rank 3 \(host nodeb, pid [0-9]+\) is silent'
  errors 1
  none_left
}

echo "== mpirun starts ranks that meet by a file"
rm -rf runs
timeout 180 mpirun -n 4 --host 10.99.0.1:2,10.99.0.2:2 -x WEFT_THREADS -x WEFT_CACHE_DIR \
  -x WEFT_ADDRESS=10.99.0.1 "$WEFT" train tiny.yaml >out 2>err || fail "mpirun"
same_bits one_host

echo "== a link that is cut for some seconds"
begin train tiny.yaml && {
  ip link set veth0 down
  sleep 3
  ip link set veth0 up
  ip -n nodeb link set veth1 up
  sleep 2
  saved=$(readlink runs/tiny/checkpoints/latest)
  until [ "$(readlink runs/tiny/checkpoints/latest)" != "$saved" ] || ! kill -0 $run 2>/dev/null; do
    sleep 0.1
  done
  kill -TERM "$(pgrep -P $run)"
  ends 75
}

echo "== a link that is cut for good"
begin train tiny.yaml && {
  ip link set veth0 down
  ends 8
  says 'rank (2|3) \(host nodeb, pid [0-9]+\) is silent|Nobody knows'
  none_left
  ip link set veth0 up
  ip -n nodeb link set veth1 up
}

echo "== a relay that delays what ranks tell each other, and then drops it"
cat >relayed.sh <<RELAYED
#!/bin/bash
[ "\$OMPI_COMM_WORLD_RANK" != 3 ] || export WEFT_ADDRESS=10.99.0.1:19998
exec "$WEFT" "\$@"
RELAYED
chmod +x relayed.sh
export WEFT_ADDRESS=10.99.0.1:19999
python3 "$SRC/tests/comm/relay.py" 10.99.0.1:19998 10.99.0.1:19999 0.3 &
relay=$!
left+=("$relay")
rm -rf runs
launch 0 -- ./relayed.sh train tiny.yaml
begin -- ./relayed.sh train tiny.yaml && {
  kill -USR1 $relay
  ends 8
  says 'rank 3 \(host nodeb, pid [0-9]+\) is silent|Nobody knows'
  none_left
}
kill -9 $relay
wait $relay 2>/dev/null || true
left=()
unset WEFT_ADDRESS

echo "== what is refused"
rm -rf runs
launch 2 -- ./nosuch
says 'cannot start ./nosuch on each host: mpirun was unable to '
errors 1
[ "$(wc -l <err)" = 1 ] || fail "more than one line"
WEFT_MPI_PLUGIN=/nowhere/libweft-mpi.so launch 7 train tiny.yaml  # and no memfd is tried instead
says '\[mpi\] no /nowhere/libweft-mpi.so'
errors 1
cat >apart.sh <<APART
#!/bin/bash
[ "\$OMPI_COMM_WORLD_RANK" -lt 2 ] && exec "$WEFT" "\$@"
exec unshare --mount bash -c 'mkdir -p runs; mount -t tmpfs none runs; exec "\$@"' _ "$WEFT" "\$@"
APART
chmod +x apart.sh
launch 5 -- ./apart.sh train tiny.yaml
says 'rank 2 \(host nodeb, pid [0-9]+\) does not see what rank 0 writes to runs/tiny/checkpoints'
errors 1
rm -rf runs
python3 -c 'import socket, time
taken = socket.create_server(("10.99.0.1", 19999))
time.sleep(60)' &
left+=($!)
sleep 1
WEFT_ADDRESS=10.99.0.1:19999 launch 2 train tiny.yaml
says 'rank 0 cannot listen on 10.99.0.1:19999: Address already in use'
none_left
kill -9 "${left[@]}"
wait "${left[@]}" 2>/dev/null || true
left=()

[ $fails = 0 ] && echo "ranks of two hosts: all as it should be"
exit $((fails > 0))
