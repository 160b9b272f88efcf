#!/usr/bin/env bash
# Runs a command where Open MPI sees two hosts, 10.99.0.1 and 10.99.0.2: network namespaces of this
# machine, which a virtual cable (veth0) joins. They end with the command. Exit code 77 and a line
# where that needs what is not here.
#   two_hosts.sh COMMAND ARGUMENT...
set -euo pipefail

skip() {
  echo "skipped: $1"
  exit 77
}
if [ "$1" != --inside ]; then
  [ "$(id -u)" = 0 ] || skip "namespaces need root"
  for tool in ip unshare mpirun python3; do
    [ -n "$(command -v $tool)" ] || skip "no $tool (tools/setup.sh --cluster)"
  done
  unshare --net --mount --uts true 2>/dev/null || skip "no namespaces here"
  exec unshare --net --mount --uts "$0" --inside "$@"
fi
shift

mount --make-rprivate /
mkdir -p /run/netns
mount -t tmpfs none /run/netns
hostname nodea
ip link set lo up
ip netns add nodeb
ip link add veth0 type veth peer name veth1 netns nodeb
ip addr add 10.99.0.1/24 dev veth0
ip link set veth0 up
ip -n nodeb addr add 10.99.0.2/24 dev veth1
ip -n nodeb link set veth1 up
ip -n nodeb link set lo up

# mpirun starts its daemon on the other host by this in place of ssh: HOST COMMAND...
agent=/run/netns/agent.sh
cat >$agent <<'AGENT'
#!/bin/bash
shift
exec ip netns exec nodeb unshare --uts bash -c "hostname nodeb; $*"
AGENT
chmod +x $agent
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_agent=$agent OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,vader,self
export OMPI_MCA_oob_tcp_if_include=10.99.0.0/24 OMPI_MCA_btl_tcp_if_include=10.99.0.0/24
exec "$@"
