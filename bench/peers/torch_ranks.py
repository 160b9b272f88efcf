#!/usr/bin/env python3
"""One rank of data parallel training in PyTorch, DDP or FSDP2 over gloo; rank 0 prints a JSON line.

    torchrun --nproc-per-node 2 torch_ranks.py gpt2 --batch 4 --length 64 --mode ddp
"""
import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import start
from torch_models import gpt2, resnet20
from workloads import WORKLOADS, print_line


def spread(model, mode):
    if mode == "ddp":
        return DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    for block in getattr(model, "h", []):
        fully_shard(block)
    return fully_shard(model)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=["gpt2", "resnet20"])
    parser.add_argument("--mode", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--batch", type=int, required=True, help="of all ranks")
    parser.add_argument("--length", type=int, default=0)
    parser.add_argument("--steps", type=int, default=7)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    torch.manual_seed(1337)
    if WORKLOADS[args.workload].convolutions:
        inputs, targets = map(torch.from_numpy, start.images(args.batch, (3, 32, 32), 10))
        inputs = inputs.to(memory_format=torch.channels_last)
        model = spread(resnet20().to(memory_format=torch.channels_last), args.mode)
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4,
                                    fused=args.mode == "ddp")
    else:
        inputs, targets = map(torch.from_numpy, start.tokens(args.batch, args.length, 50257))
        model = spread(gpt2(), args.mode)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.1,
                                      fused=args.mode == "ddp")
    inputs, targets = (each.chunk(ranks)[rank].contiguous() for each in (inputs, targets))
    seconds = []
    for _ in range(3 + args.steps):
        began = time.perf_counter()
        loss = F.cross_entropy(model(inputs), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - began)
    if rank == 0:
        print_line({"workload": args.workload, "mode": args.mode, "ranks": ranks,
                    "system": f"PyTorch {torch.__version__}",
                    "median_ms": round(1e3 * statistics.median(seconds[3:]), 2)})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
